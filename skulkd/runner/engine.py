"""The step loop: requests join and leave between two steps of the batch.

Runs the same for one rank and for many. Rank 0 decides who takes part and turns that into
orders; every rank, rank 0 included, carries the same orders out. Knows nothing of pipes or of
the runner's life before and after.
"""

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from skulkd.runner.batch import Batch, run_alone
from skulkd.runner.caches import fresh_caches, shortened
from skulkd.runner.faults import Faults
from skulkd.runner.group import Group
from skulkd.runner.lane import Progress
from skulkd.runner.load import LoadedModel
from skulkd.runner.orders import Admission, Ended, Order
from skulkd.runner.pacing import PrefillPacer
from skulkd.runner.phases import PhaseRecorder
from skulkd.runner.prefix_cache import Hit, PrefixCache
from skulkd.runner.protocol import (
    FromRunner,
    GenerationOptions,
    PrefillProgress,
    RunnerOptions,
    TaskStatus,
)
from skulkd.runner.reading import Kept
from skulkd.runner.request import Choice, Request, RequestBuilder
from skulkd.runner.request_phases import RequestPhases, StepPhases
from skulkd.runner.rows import Drawn
from skulkd.runner.sampling import greedy
from skulkd.runner.speaker import Speaker
from skulkd.runner.tracing import Tracer
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import TextGeneration

_WARMUP_PROMPT = "hello " * 32
_WARMUP_PROMPT_TOKENS = 32
WARMUP_TOKENS = 2
Work = tuple[TextGeneration, GenerationOptions]


class Engine:
    """Carries orders out. `send` takes output and task reports; it may wait for the pipe only."""

    def __init__(
        self,
        loaded: LoadedModel,
        options: RunnerOptions,
        group: Group,
        recorder: PhaseRecorder,
        send: Callable[[FromRunner], None],
        faults: Faults,
    ) -> None:
        self._loaded = loaded
        self._group = group
        self._recorder = recorder
        self._send = send
        self._faults = faults
        self._tracer = Tracer(recorder.context, send)
        self._common = StepPhases(recorder, group)
        self._phases = RequestPhases(recorder, group, self._tracer)
        if (link := getattr(loaded.model, "link", None)) is not None:
            link.note = self._common.queued
        self._speaker = None
        if group.rank == 0:
            batches = options.max_concurrent > 1
            self._speaker = Speaker(loaded.tokenizer, recorder, send, serving_batches=batches)
        self._builder = RequestBuilder(loaded, options, recorder)
        lean = shortened(fresh_caches(loaded.model), 0) is not None
        # What one rank cannot cut back, no rank may: their caches must hold the same tokens.
        self._can_shorten = bool(group.least(lean))
        self._prefixes = PrefixCache(
            options.prefix_cache_bytes, whole=group.size > 1 and not self._can_shorten
        )
        self._batch = Batch(
            loaded.seat,
            lanes=group.size if group.sharding == "pipeline" else 1,
            pacer=PrefillPacer(options.prefill_step),
            wait=self._common.wait,
        )
        self._work: dict[TaskId, Work] = {}
        self._settled: dict[TaskId, str] = {}
        self._requests: dict[TaskId, Request] = {}
        self._rows: dict[int, tuple[Request, Choice]] = {}
        self._steps = 0

    @property
    def tasks(self) -> list[TaskId]:
        """Everything accepted and not yet answered."""
        return list(self._work)

    @property
    def active(self) -> bool:
        """Whether rows are being computed."""
        return bool(self._rows)

    def warm_up(self) -> int:
        """A first short generation, so that no client pays for first times. Its token count."""
        prompt = [int(token) for token in self._loaded.tokenizer.encode(_WARMUP_PROMPT)]
        uid = self._batch.add(
            prompt[:_WARMUP_PROMPT_TOKENS],
            known=0,
            caches=fresh_caches(self._loaded.model),
            max_tokens=WARMUP_TOKENS,
            sampler=greedy,
            processors=[],
        )
        with self._common.computing():
            run_alone(self._batch, uid, WARMUP_TOKENS)
        return WARMUP_TOKENS

    def accept(self, task: TextGeneration, extra: GenerationOptions) -> None:
        """Note a task. What it asks for is looked at when rank 0 knows of it."""
        if not self._work:
            mx.reset_peak_memory()
        if task.trace_enabled:
            self._tracer.start(task.task_id)
        if (how := self._settled.pop(task.task_id, None)) is not None:
            # Rank 0 was through with it before it came here.
            self._end(task.task_id, how)
            return
        self._work[task.task_id] = (task, extra)

    def holds(self, task_id: TaskId) -> bool:
        return task_id in self._work

    def follow(self, order: Order, fetch: Callable[[TaskId], None]) -> None:
        """Carry out an order of rank 0. `fetch` waits for a task that has not come yet."""
        if order.admit or order.cancel:
            with self._common.agreeing(len(self._work) - len(self._requests)):
                late = [one.task_id for one in order.admit if one.task_id not in self._work]
                for task_id in late:
                    fetch(task_id)
            waiting = len(self._work) - len(self._requests) - len(order.admit)
            self._common.agreed(len(order.admit), len(late), waiting, order.cancel)
        self._leave(order.ended)
        self._prefixes.forget(order.evict)
        for task_id in order.refuse:
            self._settle(task_id, "Failed")
        for task_id in order.cancel:
            self._settle(task_id, "Cancelled")
        for admission in order.admit:
            self._requests[admission.task_id] = self._build(admission)
        self._join(order)
        self._advance(order)

    def close(self) -> None:
        """Let go of everything; open requests get no more output."""
        self._phases.forget()
        self._batch.drop(set(self._rows))
        self._rows.clear()
        self._requests.clear()
        self._work.clear()
        self._prefixes.clear()

    def abort(self, reason: str) -> None:
        """The runner is about to end: send what traces have."""
        self._tracer.abort(reason)

    # --- membership ---

    def _build(self, admission: Admission) -> Request:
        request = self._request(admission.task_id, admission.prompt)
        request.max_tokens = admission.max_tokens
        self._phases.admitted(request, len(self._work), len(self._rows))
        hit = Hit(admission.hit, admission.cached)
        self._phases.look_up(request, lambda: hit, enabled=self._prefixes.enabled)
        return request

    def _request(self, task_id: TaskId, prompt: list[int] | None = None) -> Request:
        task, extra = self._work[task_id]
        self._tracer.begin(task_id, "prompt_build")
        request = self._builder.build(task, extra, prompt)
        self._tracer.end(task_id, "prompt_build", "prompt", prompt_tokens=len(request.prompt))
        return request

    def _leave(self, ended: tuple[Ended, ...]) -> None:
        """Rows whose answers are complete: keep what may be of use, then let them go."""
        if not ended:
            return
        kept = {item.uid: self._batch.kept(item.uid) for item in ended if item.keep}
        self._batch.drop({item.uid for item in ended})
        for item in ended:
            request, choice = self._rows.pop(item.uid)
            if self._speaker is None:
                choice.finish_reason = item.reason
                self._phases.choice_complete(request, choice)
            if item.uid in kept:
                self._phases.remembered(request, self._remember(kept[item.uid]))
            if self._speaker is None and request.done:
                self._end(request.task_id, "Complete")
        self._count_decoding()

    def _remember(self, kept: Kept) -> bool | None:
        if self._group.rank == 0:
            return self._prefixes.add(kept.tokens, kept.caches)
        self._prefixes.follow(len(kept.tokens), kept.caches)
        return False

    def _end(self, task_id: TaskId, how: str) -> None:
        """A task is over on this rank."""
        self._work.pop(task_id, None)
        request = self._requests.pop(task_id, None)
        if how == "Complete" and request is not None:
            self._phases.complete(request)
        self._tracer.finish(
            task_id, {"Complete": "finish", "Cancelled": "cancel"}.get(how, "error")
        )
        self._send(TaskStatus.model_validate({"task_id": task_id, "status": how}))

    def _settle(self, task_id: TaskId, how: str) -> None:
        """Rank 0 is through with a task, which may not even have come here yet."""
        if task_id not in self._work:
            self._settled[task_id] = how
        elif how == "Cancelled":
            self._drop(task_id)
        else:
            self._end(task_id, how)

    def _drop(self, task_id: TaskId) -> None:
        request = self._requests.get(task_id)
        if request is not None:
            rows = {uid for uid, (owner, _) in self._rows.items() if owner is request}
            self._batch.drop(rows)
            for uid in rows:
                del self._rows[uid]
            if self._speaker is not None:
                self._speaker.forget(request)
            self._phases.cancelled(request)
            self._count_decoding()
        self._end(task_id, "Cancelled")

    def _join(self, order: Order) -> None:
        """Add the rows of new requests, after everybody is here if nobody was at work."""
        barrier = order.barrier
        for admission in order.admit:
            request = self._requests[admission.task_id]
            request.cached = admission.cached
            request.admitted_at = time.monotonic()
            if barrier or self._group.size == 1:
                self._common.woken()
                self._faults.stall("stall_before_barrier")
                with self._phases.at_barrier(request):
                    self._barrier(really=barrier)
                barrier = False
            self._phases.prefilling(request)
            first, *request.waiting = request.choices
            hit = Hit(admission.hit, admission.cached)
            caches = self._prefixes.take(hit)
            if caches is not None and hit.length == len(request.prompt) - 1:
                self._spread(request, Kept(caches, request.prompt[:-1]))
            if caches is None:
                caches = fresh_caches(self._loaded.model)
            self._add_row(request, first, caches, hit.length)

    def _barrier(self, *, really: bool) -> None:
        self._faults.stall("stall_in_barrier")
        if really and not self._faults.has("skip_collective"):
            with self._common.at_barrier():
                self._group.barrier()

    def _add_row(self, request: Request, choice: Choice, caches: list[Any], known: int) -> None:
        uid = self._batch.add(
            request.prompt,
            known=known,
            caches=caches,
            max_tokens=request.max_tokens,
            sampler=choice.sampler,
            processors=choice.processors,
            rivals=request.top_logprobs,
        )
        self._rows[uid] = (request, choice)

    # --- steps ---

    def _advance(self, order: Order) -> None:
        """One step of one lane: a token for who decodes, a piece for who reads."""
        if order.lane is None:
            return
        self._batch.balance()
        self._steps += 1
        self._common.begin_step(self._steps)
        self._faults.stall("delay")
        if self._steps == 3:
            self._faults.stall("stall_step")
        self._common.step("generator_step_enter", self._steps, self._requests)
        began = time.monotonic()
        with self._common.computing():
            drawn = self._batch.decode(order.lane)
        if drawn:
            if self._tracer.active:
                self._tracer.step([self._rows[item.uid][0].task_id for item in drawn], began)
            self._on_drawn(drawn)
        if self._batch.reads(order.lane):
            if self._speaker is not None:
                self._speaker.flush()
            with self._common.computing():
                read = self._batch.read_prompts(order.lane, order.rows, order.size)
            for item in read:
                self._on_prompt(item)
        self._common.step("generator_step_exit", self._steps, self._requests)

    def _on_prompt(self, item: Progress) -> None:
        request, choice = self._rows[item.uid]
        if choice.index != 0:
            return
        total = len(request.prompt)
        self._phases.prompt_progress(request, item.done)
        if self._speaker is not None and not item.ready:
            self._send(PrefillProgress(task_id=request.task_id, processed=item.done, total=total))
        if item.ready:
            if self._speaker is not None:
                self._speaker.prompt_read(request)
            self._common.prompt_read()
            self._prompt_computed(request, item.uid)
            self._phases.waiting_for_first_token(request)

    def _prompt_computed(self, request: Request, uid: int) -> None:
        """All but the last token of the prompt is there: the moment to share it."""
        if request.waiting:
            self._spread(request, self._batch.kept(uid))
        elif self._prefixes.enabled and not self._can_shorten:
            # These caches cannot be cut back later, so the next turn needs this very state.
            self._remember(self._batch.kept(uid))

    def _spread(self, request: Request, kept: Kept) -> None:
        """Let the other choices begin from what the first one computed."""
        waiting, request.waiting = request.waiting, []
        for choice in waiting:
            self._add_row(request, choice, kept.copy(), len(kept.tokens))

    def _on_drawn(self, drawn: list[Drawn]) -> None:
        """Count tokens; rank 0, which knows them, also writes the answers."""
        now = time.monotonic()
        for item in drawn:
            request, choice = self._rows[item.uid]
            self._note_token(request, now)
            choice.tokens += 1
            self._phases.token(request, choice)

    def _note_token(self, request: Request, now: float) -> None:
        if not request.first_token_at:
            request.first_token_at = now
            self._phases.first_token(request)
        request.last_token_at = now

    def _count_decoding(self) -> None:
        decoding = [
            request.owner
            for request, choice in self._rows.values()
            if request.first_token_at and choice.finish_reason is None
        ]
        self._phases.still_decoding(decoding)
