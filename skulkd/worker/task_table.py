"""The tasks of one runner: sent, acknowledged, cancelled, ended; with streams and events.

Knows no process. The supervisor reports what the runner sends, and that the runner is gone.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from skulkd.runner.protocol import Output, PrefillProgress
from skulkd.runner.protocol import TaskStatus as TaskStatusMessage
from skulkd.wire import events
from skulkd.wire.diagnostics import RunnerTaskDiagnostics, TaskCancelStatus
from skulkd.wire.ids import ModelId, RunnerId, TaskId
from skulkd.wire.tasks import BaseRequestTask, Task, TaskStatus
from skulkd.worker.endings import truncate
from skulkd.worker.task_stream import SLOW_READER, TaskEnded, TaskStream

TERMINAL: frozenset[TaskStatus] = frozenset({"Complete", "TimedOut", "Failed", "Cancelled"})
# Enough to answer questions about tasks that have just ended; older ids are forgotten.
REMEMBERED = 256
# Weight of a new duration in the running mean.
_NEWEST = 0.3


@dataclass(slots=True)
class OpenTask:
    """A task that has not ended. Times are of the daemon's monotonic clock."""

    task: Task
    status: TaskStatus
    sent_at: float
    acknowledged: bool = False
    cancelled_at: float | None = None
    queued_s: float = 0.0
    """How long it waited in the runner; known when its answer is complete."""


class TaskTable:
    """Open tasks in the order in which they were sent.

    `publish` takes events for the state, `milestone` takes name and detail for diagnostics. With
    `follows` no request is published: the table of rank 0 does that for all ranks.
    """

    def __init__(
        self,
        publish: Callable[[events.Event], None],
        milestone: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        follows: bool = False,
    ) -> None:
        self._publish = publish
        self._milestone = milestone
        self._clock = clock
        self._follows = follows
        self._open: dict[TaskId, OpenTask] = {}
        self._streams: dict[TaskId, TaskStream] = {}
        self._published: set[TaskId] = set()
        self._ended: deque[tuple[TaskId, TaskStatus]] = deque(maxlen=REMEMBERED)
        self._cancelled: deque[TaskId] = deque(maxlen=REMEMBERED)
        self.completed_count = 0
        self.mean_s = 1.0
        """Mean duration of recent requests, without the time for which they were queued."""

    @property
    def open(self) -> tuple[OpenTask, ...]:
        return tuple(self._open.values())

    @property
    def open_requests(self) -> int:
        return sum(isinstance(entry.task, BaseRequestTask) for entry in self._open.values())

    @property
    def pending_ids(self) -> list[TaskId]:
        """Tasks that were sent and not acknowledged."""
        return [task_id for task_id, entry in self._open.items() if not entry.acknowledged]

    @property
    def pending_s(self) -> float | None:
        """For how long the oldest of them has been sent; None without one."""
        sent = [entry.sent_at for entry in self._open.values() if not entry.acknowledged]
        return self._clock() - min(sent) if sent else None

    @property
    def cancelled_ids(self) -> list[TaskId]:
        return list(self._cancelled)

    def find(self, task_id: TaskId) -> OpenTask | None:
        return self._open.get(task_id)

    def in_progress(self, runner_id: RunnerId, card_id: ModelId) -> list[RunnerTaskDiagnostics]:
        return [_describe(entry, runner_id, card_id) for entry in self._open.values()]

    # --- changes ---

    def add(self, task: Task, stream: TaskStream | None = None) -> None:
        """A task was sent to the runner."""
        self._open[task.task_id] = OpenTask(task, task.task_status, self._clock())
        self._milestone("task_sent", f"{type(task).__name__}:{task.task_id}")
        if stream is not None:
            self._streams[task.task_id] = stream
        if self._follows and isinstance(task, BaseRequestTask):
            return
        self._published.add(task.task_id)
        self._publish(events.TaskCreated(task_id=task.task_id, task=task))

    def acknowledge(self, task_id: TaskId) -> None:
        entry = self._open.get(task_id)
        if entry is not None and not entry.acknowledged:
            entry.acknowledged = True
            self._milestone("task_acknowledged", task_id)

    def push(self, item: Output | PrefillProgress, size_bytes: int) -> bool:
        """False when the client reads too slowly: its stream was ended, cancel the task."""
        entry = self._open.get(item.task_id)
        if entry is not None and isinstance(item, Output) and item.queued_s is not None:
            entry.queued_s = item.queued_s
        stream = self._streams.get(item.task_id)
        if stream is None or stream.push(item, size_bytes):
            return True
        message = "the answer was read too slowly, so it was cut off"
        self._end_stream(item.task_id, TaskEnded("Failed", SLOW_READER, message))
        return False

    def update(self, message: TaskStatusMessage) -> None:
        """A status from the runner; only the first end of a task counts."""
        task_id, status = message.task_id, message.status
        entry = self._open.get(task_id)
        if entry is None:
            self._milestone("terminal_status_suppressed", task_id)
        elif status in TERMINAL:
            if status == "Complete" and isinstance(entry.task, BaseRequestTask):
                served_s = self._clock() - entry.sent_at - entry.queued_s
                self.mean_s += _NEWEST * (served_s - self.mean_s)
            reason = None if message.error_message is None else truncate(message.error_message)
            self._end(task_id, TaskEnded(status, message.error_type, reason))
        else:
            entry.status = status
            if task_id in self._published:
                self._publish(events.TaskStatusUpdated(task_id=task_id, task_status=status))

    def request_cancel(self, task_id: TaskId) -> TaskCancelStatus | None:
        """Mark a request as cancelled. None: there is and was no such request."""
        entry = self._open.get(task_id)
        if entry is None:
            return self._cancel_status_of_ended(task_id)
        if not isinstance(entry.task, BaseRequestTask):
            return None  # loading and warming up cannot be cancelled
        if entry.cancelled_at is not None:
            return "already_cancelled"
        entry.cancelled_at = self._clock()
        self._cancelled.append(task_id)
        return "cancel_requested"

    def close(self, ended: TaskEnded) -> None:
        """The runner is gone: every open task ends like this."""
        for task_id in list(self._open):
            self._end(task_id, ended)

    def _end(self, task_id: TaskId, ended: TaskEnded) -> None:
        del self._open[task_id]
        self._ended.append((task_id, ended.status))
        self.completed_count += ended.status == "Complete"
        if ended.status == "Cancelled" and task_id not in self._cancelled:
            self._cancelled.append(task_id)
        self._milestone(*_end_milestone(task_id, ended.status))
        self._end_stream(task_id, ended)

    def _end_stream(self, task_id: TaskId, ended: TaskEnded) -> None:
        """Pass the end on to the client and to the state, once."""
        stream = self._streams.pop(task_id, None)
        if stream is not None:
            stream.end(ended)
        if task_id not in self._published:
            return
        self._published.discard(task_id)
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

    def _cancel_status_of_ended(self, task_id: TaskId) -> TaskCancelStatus | None:
        for known, status in self._ended:
            if known == task_id:
                return "already_cancelled" if status == "Cancelled" else "already_completed"
        return None


def _describe(entry: OpenTask, runner_id: RunnerId, card_id: ModelId) -> RunnerTaskDiagnostics:
    task = entry.task
    request = task if isinstance(task, BaseRequestTask) else None
    return RunnerTaskDiagnostics(
        task_id=task.task_id,
        task_kind=type(task).__name__,
        task_status=entry.status,
        instance_id=task.instance_id,
        command_id=None if request is None else request.command_id,
        runner_id=runner_id,
        model_id=card_id if request is None else request.task_params.model,
    )


def _end_milestone(task_id: TaskId, status: TaskStatus) -> tuple[str, str]:
    if status == "Complete":
        return "task_completed", task_id
    if status == "Cancelled":
        return "task_cancelled", task_id
    return "task_terminal", f"{status}:{task_id}"
