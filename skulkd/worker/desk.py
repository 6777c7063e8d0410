"""Tasks of one runner as the rest of the node sees them: streams for clients, events for the state.

Knows no process. The supervisor tells it what the runner says, and that the runner is gone.
"""

import time
from collections.abc import Callable

from skulkd.runner import protocol
from skulkd.wire import events
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import Task, TextGeneration
from skulkd.worker.causes import cut
from skulkd.worker.record import RunnerRecord
from skulkd.worker.task_book import TERMINAL, OpenTask
from skulkd.worker.task_stream import SLOW_READER, TaskEnded, TaskStream

# How much a new duration counts in the running mean.
_NEWEST = 0.3


class TaskDesk:
    """`publish` takes events for the state. Each task's end leaves this desk once.

    One that `follows` tells nobody of requests: rank 0's desk does.
    """

    def __init__(
        self,
        record: RunnerRecord,
        publish: Callable[[events.Event], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        follows: bool = False,
    ) -> None:
        self._follows = follows
        self._record = record
        self._publish = publish
        self._clock = clock
        self._streams: dict[TaskId, TaskStream] = {}
        self._shown: set[TaskId] = set()
        self.mean_s = 1.0
        """How long requests take here, about."""

    @property
    def requests(self) -> int:
        """Requests without an end."""
        return sum(isinstance(entry.task, TextGeneration) for entry in self._record.book.open)

    def opened(self, task: Task, stream: TaskStream | None = None) -> None:
        """A task is about to go to the runner."""
        self._record.sent(task)
        if stream is not None:
            self._streams[task.task_id] = stream
        if self._follows and isinstance(task, TextGeneration):
            return
        self._shown.add(task.task_id)
        self._publish(events.TaskCreated(task_id=task.task_id, task=task))

    def acknowledged(self, task_id: TaskId) -> None:
        if self._record.book.acknowledge(task_id):
            self._record.milestone("task_acknowledged", task_id)

    def progressed(self, item: protocol.Output | protocol.PrefillProgress, size_bytes: int) -> bool:
        """False when the reader of this task is too slow: it has been cut off, stop the task."""
        stream = self._streams.get(item.task_id)
        if stream is None or stream.push(item, size_bytes):
            return True
        message = "the answer was read too slowly, so it was cut off"
        self._conclude(item.task_id, TaskEnded("Failed", SLOW_READER, message))
        return False

    def reported(self, message: protocol.TaskStatus) -> None:
        """A status of the runner; only the first end of a task counts."""
        task_id, status = message.task_id, message.status
        entry = self._record.book.report(task_id, status)
        if entry is None:
            self._record.milestone("terminal_status_suppressed", task_id)
        elif status in TERMINAL:
            self._record.milestone(*_milestone(entry))
            if status == "Complete" and isinstance(entry.task, TextGeneration):
                self.mean_s += _NEWEST * (self._clock() - entry.sent_at - self.mean_s)
            reason = None if message.error_message is None else cut(message.error_message)
            self._conclude(task_id, TaskEnded(status, message.error_type, reason))
        elif task_id in self._shown:
            self._publish(events.TaskStatusUpdated(task_id=task_id, task_status=status))

    def close(self, ended: TaskEnded) -> None:
        """The runner is gone: whatever is open ends like this."""
        for entry in self._record.book.close(ended.status):
            self._record.milestone(*_milestone(entry))
            self._conclude(entry.task.task_id, ended)

    def _conclude(self, task_id: TaskId, ended: TaskEnded) -> None:
        stream = self._streams.pop(task_id, None)
        if stream is not None:
            stream.end(ended)
        if task_id not in self._shown:
            return
        self._shown.discard(task_id)
        if ended.status == "Failed":
            self._publish(
                events.TaskFailed(
                    task_id=task_id,
                    error_type=ended.error_type or "runner_failed",
                    error_message=ended.error_message or "the runner gave no reason",
                )
            )
        else:
            self._publish(events.TaskStatusUpdated(task_id=task_id, task_status=ended.status))
        self._publish(events.TaskDeleted(task_id=task_id))


def _milestone(entry: OpenTask) -> tuple[str, str]:
    task_id, status = entry.task.task_id, entry.status
    if status == "Complete":
        return "task_completed", task_id
    if status == "Cancelled":
        return "task_cancelled", task_id
    return "task_terminal", f"{status}:{task_id}"
