"""Which tasks a runner has: sent, acknowledged, cancelled, done. Knows no pipes and no clients."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from skulkd.wire.diagnostics import RunnerTaskDiagnostics, TaskCancelStatus
from skulkd.wire.ids import ModelId, RunnerId, TaskId
from skulkd.wire.tasks import BaseRequestTask, Task, TaskStatus

TERMINAL: frozenset[TaskStatus] = frozenset({"Complete", "TimedOut", "Failed", "Cancelled"})
# Enough to answer who asks about a task that has just ended; ids must not pile up for ever.
REMEMBERED = 256


@dataclass(slots=True)
class OpenTask:
    """A task without its end. Times are of the supervisor's monotonic clock."""

    task: Task
    status: TaskStatus
    sent_at: float
    acknowledged: bool = False
    cancelled_at: float | None = None


class TaskBook:
    """Open tasks in the order in which they were sent."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[TaskId, OpenTask] = {}
        self._ended: deque[tuple[TaskId, TaskStatus]] = deque(maxlen=REMEMBERED)
        self._cancelled: deque[TaskId] = deque(maxlen=REMEMBERED)
        self.completed_count = 0

    @property
    def open(self) -> tuple[OpenTask, ...]:
        return tuple(self._open.values())

    @property
    def pending_ids(self) -> list[TaskId]:
        return [task_id for task_id, entry in self._open.items() if not entry.acknowledged]

    @property
    def pending_s(self) -> float | None:
        """How long the oldest task has been sent and not acknowledged; None without one."""
        sent = [entry.sent_at for entry in self._open.values() if not entry.acknowledged]
        return self._clock() - min(sent) if sent else None

    @property
    def cancelled_ids(self) -> list[TaskId]:
        return list(self._cancelled)

    def find(self, task_id: TaskId) -> OpenTask | None:
        return self._open.get(task_id)

    def send(self, task: Task) -> None:
        """A task is about to go out."""
        self._open[task.task_id] = OpenTask(task, task.task_status, self._clock())

    def acknowledge(self, task_id: TaskId) -> bool:
        """False when it is not open, or was acknowledged before."""
        entry = self._open.get(task_id)
        if entry is None or entry.acknowledged:
            return False
        entry.acknowledged = True
        return True

    def report(self, task_id: TaskId, status: TaskStatus) -> OpenTask | None:
        """Take over a status. None when the task is not open: its end was reported before."""
        entry = self._open.get(task_id)
        if entry is None:
            return None
        entry.status = status
        if status in TERMINAL:
            del self._open[task_id]
            self._ended.append((task_id, status))
            self.completed_count += status == "Complete"
            if status == "Cancelled" and task_id not in self._cancelled:
                self._cancelled.append(task_id)
        return entry

    def cancel(self, task_id: TaskId) -> TaskCancelStatus | None:
        """Note a wish to cancel and say what it means. None: such a request never was here."""
        entry = self._open.get(task_id)
        if entry is None:
            return self._how_it_ended(task_id)
        if not isinstance(entry.task, BaseRequestTask):
            return None  # loading and warming up end with the runner or not at all
        if entry.cancelled_at is not None:
            return "already_cancelled"
        entry.cancelled_at = self._clock()
        self._cancelled.append(task_id)
        return "cancel_requested"

    def close(self, status: TaskStatus) -> list[OpenTask]:
        """The runner is gone: every open task ends like this."""
        entries = list(self._open.values())
        for entry in entries:
            self.report(entry.task.task_id, status)
        return entries

    def in_progress(self, runner_id: RunnerId, card_id: ModelId) -> list[RunnerTaskDiagnostics]:
        return [_describe(entry, runner_id, card_id) for entry in self._open.values()]

    def _how_it_ended(self, task_id: TaskId) -> TaskCancelStatus | None:
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
