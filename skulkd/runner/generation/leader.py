"""Rank 0's decisions, as orders that all ranks carry out, rank 0 included."""

from skulkd.runner.errors import BadRequest
from skulkd.runner.generation.engine import Engine
from skulkd.runner.generation.scheduler import AdmissionQueue
from skulkd.runner.group.orders import Admission, Order
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import ServedTask


class Leader:
    """While it is `busy`, `next_order` has to be broadcast and carried out."""

    def __init__(self, engine: Engine, slots: int, group_size: int) -> None:
        self._engine = engine
        self._group_size = group_size
        self._queue = AdmissionQueue(slots)
        self._cancelled: set[TaskId] = set()
        self._refused: list[TaskId] = []

    @property
    def busy(self) -> bool:
        return bool(self._engine.tasks or self._engine.leaving or self._refused)

    def accept(self, task: ServedTask, extra: GenerationOptions) -> None:
        """Queue a request. Raises BadRequest; nothing was computed for it then."""
        self._engine.accept(task, extra)
        try:
            choices = self._engine.prepare(task.task_id)
        except BadRequest:
            if self._group_size > 1:
                self._refused.append(task.task_id)
            raise
        self._queue.add(task.task_id, choices)

    def cancel(self, task_id: TaskId) -> bool:
        """Whether the task is here; it ends before the next step."""
        if self._engine.holds(task_id):
            self._cancelled.add(task_id)
        return self._engine.holds(task_id)

    def next_order(self) -> Order:
        """One change at a time, so that each is decided from a state that all ranks share."""
        if self._engine.leaving or self._refused:
            refused, self._refused = tuple(self._refused), []
            ended, evicted = self._engine.pop_leaving()
            return Order(ended=ended, evict=evicted, refuse=refused)
        if self._cancelled and (cancelled := self._pop_cancelled()):
            return Order(cancel=cancelled)
        if self._queue and (admitted := self._queue.admit(self._engine.slots_used)):
            barrier = self._group_size > 1 and not self._engine.active
            return Order(admit=tuple(map(self._admission, admitted)), barrier=barrier)
        if not self._engine.tasks:
            return Order(sleep=True)
        return self._engine.next_step()

    def _pop_cancelled(self) -> tuple[TaskId, ...]:
        """Those that have not ended in the meantime."""
        cancelled, self._cancelled = self._cancelled, set()
        for task_id in cancelled:
            self._queue.remove(task_id)
        return tuple(task_id for task_id in cancelled if self._engine.holds(task_id))

    def _admission(self, task_id: TaskId) -> Admission:
        request, hit = self._engine.look_up(task_id)
        return Admission(task_id, request.prompt, request.max_tokens, hit.number, hit.length)
