"""Rank 0's part, which is everything on one rank: it decides, answers clients, and leads."""

import time
from collections.abc import Callable

from skulkd.runner.engine import Engine
from skulkd.runner.faults import Faults
from skulkd.runner.group import Group
from skulkd.runner.load import LoadedModel
from skulkd.runner.orders import Admission, Ended, Order
from skulkd.runner.phases import PhaseRecorder
from skulkd.runner.protocol import FromRunner, GenerationOptions, RunnerOptions
from skulkd.runner.refusals import BadRequest
from skulkd.runner.request import Choice, Request
from skulkd.runner.rows import Drawn
from skulkd.runner.scheduler import Scheduler
from skulkd.runner.speaker import Speaker
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import TextGeneration


class Leader(Engine):
    """`step` while it is `busy`."""

    _speaker: Speaker

    def __init__(
        self,
        loaded: LoadedModel,
        options: RunnerOptions,
        group: Group,
        recorder: PhaseRecorder,
        send: Callable[[FromRunner], None],
        faults: Faults,
    ) -> None:
        super().__init__(loaded, options, group, recorder, send, faults)
        self._scheduler = Scheduler(options.max_concurrent)
        self._ended: list[Ended] = []
        self._refused: list[TaskId] = []
        self._orders = 0

    @property
    def busy(self) -> bool:
        return bool(self._scheduler or self._ended or self._refused)

    def accept(self, task: TextGeneration, extra: GenerationOptions) -> None:
        """Take a request. Raises BadRequest; nothing was computed for it then."""
        super().accept(task, extra)
        try:
            request = self._request(task.task_id)
        except BadRequest:
            del self._work[task.task_id]
            self._tracer.finish(task.task_id, "error")
            if self._group.size > 1:
                self._refused.append(task.task_id)
            raise
        self._requests[task.task_id] = request
        self._scheduler.submit(task.task_id, len(request.choices))

    def cancel(self, task_id: TaskId) -> bool:
        """Whether the task is here; it ends before the next step."""
        return self._faults.has("ignore_cancel") or self._scheduler.cancel(task_id)

    def step(self) -> None:
        """Change membership as planned, then compute one step, everybody together."""
        order = self._next_order()
        if self._group.size > 1:
            self._group.lead(order)
        self._join(order)
        self._advance(order)

    def close(self) -> None:
        super().close()
        self._ended.clear()
        self._refused.clear()

    def _next_order(self) -> Order:
        if self._scheduler.settled and not (self._ended or self._refused):
            # Nobody comes or goes, as on nearly every step.
            self._orders += 1
            turn = self._batch.turn()
            rows, size = self._batch.prefill_size(turn, [])
            return Order(self._orders, lane=turn, rows=rows, size=size)
        plan = self._scheduler.plan()
        ended, self._ended = tuple(self._ended), []
        refused, self._refused = tuple(self._refused), []
        self._scheduler.apply(plan)
        in_flight = len(self._scheduler.active) - len(plan.admit)
        for number, task_id in enumerate(plan.admit, in_flight + 1):
            self._requests[task_id].in_flight_at_admission = number
        self._leave(ended)
        idle = not len(self._batch)
        self._orders += 1
        if plan:
            with self._common.agreeing(len(plan.admit)):
                for task_id in plan.cancel:
                    self._drop(task_id)
            self._common.agreed(len(plan.admit), 0, self._scheduler.queued, plan.cancel)
        admitted = tuple(self._admission(self._requests[one]) for one in plan.admit)
        lane = self._batch.turn() if self._scheduler else None
        joining = [len(one.prompt) - one.cached for one in admitted]
        rows, size = (0, 0) if lane is None else self._batch.prefill_size(lane, joining)
        return Order(
            self._orders,
            ended=ended,
            evict=self._prefixes.evicted(),
            refuse=refused,
            cancel=plan.cancel,
            admit=admitted,
            barrier=bool(admitted) and idle and self._group.size > 1,
            lane=lane,
            rows=rows,
            size=size,
            sleep=lane is None,
        )

    def _admission(self, request: Request) -> Admission:
        self._phases.admitted(request, self._scheduler.queued, len(self._rows))
        hit = self._phases.look_up(
            request, lambda: self._prefixes.find(request.prompt), enabled=self._prefixes.enabled
        )
        return Admission(
            request.task_id, request.prompt, request.max_tokens, hit.number, hit.length
        )

    def _on_drawn(self, drawn: list[Drawn]) -> None:
        now = time.monotonic()
        hurry = False
        for item in drawn:
            request, choice = self._rows[item.uid]
            hurry = hurry or not request.first_token_at
            self._note_token(request, now)
            self._speaker.write(request, choice, item)
            self._phases.token(request, choice)
            if choice.finish_reason is not None:
                self._row_ended(item.uid, request, choice)
        self._speaker.flush(now, hurry=hurry)

    def _row_ended(self, uid: int, request: Request, choice: Choice) -> None:
        reason = choice.finish_reason or "stop"
        keep = self._prefixes.enabled and choice.index == 0
        self._ended.append(Ended(uid, reason, keep))
        self._count_decoding()
        self._phases.choice_complete(request, choice)
        if request.done:
            self._scheduler.finished(request.task_id)
            self._speaker.conclude(request)
            self._end(request.task_id, "Complete")
