"""Who takes part in the next step: the queue, the slots and the plan. Pure.

The only place where membership is decided. With several ranks one of them plans and the others
follow its plan, so a plan names tasks and nothing that only one rank knows.
"""

from collections import deque
from dataclasses import dataclass

from skulkd.wire.ids import TaskId


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What changes before the next step."""

    admit: tuple[TaskId, ...] = ()
    cancel: tuple[TaskId, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.admit or self.cancel)


class Scheduler:
    """First come, first served. A task takes as many slots as it has choices."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._queue: deque[tuple[TaskId, int]] = deque()
        self._active: dict[TaskId, int] = {}
        self._cancelled: dict[TaskId, None] = {}

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def active(self) -> tuple[TaskId, ...]:
        return tuple(self._active)

    def __bool__(self) -> bool:
        return bool(self._queue or self._active)

    @property
    def settled(self) -> bool:
        """Whether the next plan is bound to be empty."""
        return not (self._queue or self._cancelled)

    def knows(self, task_id: TaskId) -> bool:
        return task_id in self._active or any(task_id == queued for queued, _ in self._queue)

    def submit(self, task_id: TaskId, choices: int) -> None:
        self._queue.append((task_id, choices))

    def cancel(self, task_id: TaskId) -> bool:
        """Whether there is something to cancel; it happens with the next plan."""
        if not self.knows(task_id):
            return False
        self._cancelled[task_id] = None
        return True

    def plan(self) -> StepPlan:
        """Cancels first, so that their slots are free for who waits."""
        cancel = tuple(self._cancelled)
        gone = set(cancel)
        taken = sum(count for task_id, count in self._active.items() if task_id not in gone)
        admit: list[TaskId] = []
        for task_id, choices in self._queue:
            if task_id in gone:
                continue
            # A request with more choices than slots gets the machine to itself.
            if taken and taken + choices > self._slots:
                break
            admit.append(task_id)
            taken += choices
        return StepPlan(tuple(admit), cancel)

    def apply(self, plan: StepPlan) -> None:
        """Carry out a plan, our own or the leading rank's."""
        leaving = {*plan.admit, *plan.cancel}
        entering = {task_id: n for task_id, n in self._queue if task_id in plan.admit}
        self._queue = deque(item for item in self._queue if item[0] not in leaving)
        for task_id in plan.cancel:
            self._active.pop(task_id, None)
            self._cancelled.pop(task_id, None)
        for task_id in plan.admit:
            self._active[task_id] = entering[task_id]

    def finished(self, task_id: TaskId) -> None:
        self._active.pop(task_id, None)
        self._cancelled.pop(task_id, None)
