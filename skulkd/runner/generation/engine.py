"""The step loop: carries out orders. Requests join and leave between two steps of the batch.

The same code runs on every rank, and on a single one. Knows nothing of pipes or of the runner's
lifecycle.
"""

import time
from collections.abc import Callable
from typing import Any, Literal

import mlx.core as mx

from skulkd.runner.errors import BadRequest
from skulkd.runner.faults import Faults
from skulkd.runner.generation.batch import Batch, run_alone
from skulkd.runner.generation.entries import RequestEntries, StepEntries
from skulkd.runner.generation.executors import executor_for
from skulkd.runner.generation.lane import PromptProgress
from skulkd.runner.generation.prefill import CachedSequence
from skulkd.runner.generation.prefix_cache import PrefixCache, PrefixHit
from skulkd.runner.generation.request import Choice, Request, RequestBuilder
from skulkd.runner.generation.responses import ResponseWriter
from skulkd.runner.generation.rows import SampledToken
from skulkd.runner.generation.sampling import greedy
from skulkd.runner.generation.scheduler import PrefillPacer
from skulkd.runner.group.group import RankGroup
from skulkd.runner.group.orders import Admission, Order, RowEnded
from skulkd.runner.model.caches import fresh_caches, shortened
from skulkd.runner.model.load import LoadedModel
from skulkd.runner.protocol import FromRunner, GenerationOptions, RunnerOptions, TaskStatus
from skulkd.runner.recording.recorder import PhaseRecorder
from skulkd.runner.recording.tracing import Tracer
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import ServedTask, TextGeneration

_WARMUP_PROMPT = "hello " * 32
_WARMUP_PROMPT_TOKENS = 32
WARMUP_TOKENS = 2
_Result = Literal["Complete", "Cancelled", "Failed"]


class Engine:
    """`send` takes output and task statuses; it may wait for the pipe only."""

    def __init__(
        self,
        loaded: LoadedModel,
        options: RunnerOptions,
        group: RankGroup,
        recorder: PhaseRecorder,
        send: Callable[[FromRunner], None],
        faults: Faults,
    ) -> None:
        self._loaded = loaded
        self._group = group
        self._send = send
        self._faults = faults
        self._tracer = Tracer(recorder.context, send)
        recorder.listener = self._tracer.observe
        self._step_entries = StepEntries(recorder, group)
        self._entries = RequestEntries(recorder, group)
        if (link := getattr(loaded.model, "link", None)) is not None:
            link.on_queue = self._step_entries.queued
        self._builder = RequestBuilder(loaded, options, recorder)
        self._responses = None
        if group.rank == 0:
            self._responses = ResponseWriter(
                loaded.tokenizer, recorder, send, serving_batches=options.max_concurrent > 1
            )
        trimmable = shortened(fresh_caches(loaded.model), 0) is not None
        # If one rank cannot trim its caches, no rank may: they must hold the same tokens.
        self._can_trim = bool(group.minimum(trimmable))
        self._prefixes = PrefixCache(
            options.prefix_cache_bytes, whole=group.size > 1 and not self._can_trim
        )
        self._batch = Batch(
            executor_for(loaded.model, group.mlx),
            lanes=group.size if group.sharding == "pipeline" else 1,
            pacer=PrefillPacer(options.prefill_step),
            wait=self._step_entries.wait,
        )
        self._tasks: dict[TaskId, tuple[TextGeneration, GenerationOptions]] = {}
        self._prepared: dict[TaskId, Request] = {}
        self._ended_early: dict[TaskId, _Result] = {}
        """Tasks that ended on rank 0 before they arrived here."""
        self._requests: dict[TaskId, Request] = {}
        self._rows: dict[int, tuple[Request, Choice]] = {}
        self._ended: list[RowEnded] = []
        self._steps = 0

    # --- state, for the leader and the session ---

    @property
    def tasks(self) -> list[TaskId]:
        """Everything accepted and not yet answered."""
        return list(self._tasks)

    @property
    def active(self) -> bool:
        """Whether rows are being computed."""
        return bool(self._rows)

    @property
    def slots_used(self) -> int:
        return sum(len(request.choices) for request in self._requests.values())

    @property
    def leaving(self) -> bool:
        """Whether rows have ended or prefixes were evicted since the last order."""
        return bool(self._ended or self._prefixes.has_evicted)

    def serves(self, task: ServedTask) -> bool:
        return isinstance(task, TextGeneration)

    def holds(self, task_id: TaskId) -> bool:
        return task_id in self._tasks

    def pop_leaving(self) -> tuple[tuple[RowEnded, ...], tuple[int, ...]]:
        ended, self._ended = tuple(self._ended), []
        return ended, self._prefixes.pop_evicted()

    def look_up(self, task_id: TaskId) -> tuple[Request, PrefixHit]:
        """A prepared request, and the longest prefix of it that is cached."""
        request = self._prepared[task_id]
        return request, self._prefixes.find(request.prompt)

    def next_step(self) -> Order:
        lane = self._batch.next_lane()
        rows, size = self._batch.prefill_size(lane)
        return Order(lane=lane, rows=rows, size=size)

    # --- tasks ---

    def warm_up(self) -> int:
        """A first short generation, so that no client waits for one-time work. Its token count."""
        prompt = [int(token) for token in self._loaded.tokenizer.encode(_WARMUP_PROMPT)]
        uid = self._batch.add(
            prompt[:_WARMUP_PROMPT_TOKENS],
            known=0,
            caches=fresh_caches(self._loaded.model),
            max_tokens=WARMUP_TOKENS,
            sampler=greedy,
            processors=[],
        )
        with self._step_entries.computing():
            run_alone(self._batch, uid, WARMUP_TOKENS)
        return WARMUP_TOKENS

    def accept(self, task: ServedTask, extra: GenerationOptions) -> None:
        """Keep a task until rank 0 admits it. Raises BadRequest."""
        if not isinstance(task, TextGeneration):
            raise BadRequest("this model generates text and makes no embeddings")
        if not self._tasks:
            mx.reset_peak_memory()
        if task.trace_enabled:
            self._tracer.start(task.task_id)
        self._tasks[task.task_id] = (task, extra)
        if (result := self._ended_early.pop(task.task_id, None)) is not None:
            self._end(task.task_id, result)

    def prepare(self, task_id: TaskId) -> int:
        """Build the request of a task; how many choices it has. Raises BadRequest."""
        try:
            request = self._builder.build(*self._tasks[task_id])
        except BadRequest:
            del self._tasks[task_id]
            self._tracer.finish(task_id, "error")
            raise
        self._prepared[task_id] = request
        return len(request.choices)

    def close(self) -> None:
        """Free everything; open requests get no more output."""
        self._entries.forget()
        self._batch.drop(set(self._rows))
        self._rows.clear()
        self._requests.clear()
        self._tasks.clear()
        self._prefixes.clear()

    def abort(self, reason: str) -> None:
        """The runner is about to end: send the traces as they are."""
        self._tracer.abort(reason)

    # --- orders ---

    def follow(self, order: Order, fetch: Callable[[TaskId], None]) -> None:
        """Carry out an order of rank 0. `fetch` waits for a task that has not arrived yet."""
        if order.lane is not None:
            self._step(order.lane, order.rows, order.size)
            return
        if (order.admit or order.cancel) and not self._await_tasks(order, fetch):
            return
        self._end_rows(order.ended)
        self._prefixes.forget(order.evict)
        for task_id in order.refuse if self._group.rank else ():
            self._end_or_note(task_id, "Failed")
        for task_id in order.cancel:
            self._end_or_note(task_id, "Cancelled")
        self._admit(order.admit, barrier=order.barrier)

    def _await_tasks(self, order: Order, fetch: Callable[[TaskId], None]) -> bool:
        """False when the runner was stopped before all of them had arrived."""
        waiting = len(self._tasks) - len(self._requests)
        with self._step_entries.agreeing(waiting):
            late = [item.task_id for item in order.admit if item.task_id not in self._tasks]
            for task_id in late:
                fetch(task_id)
        if any(item.task_id not in self._tasks for item in order.admit):
            return False
        queued = len(self._tasks) - len(self._requests) - len(order.admit)
        self._step_entries.agreed(len(order.admit), len(late), queued, order.cancel)
        return True

    def _end_rows(self, ended: tuple[RowEnded, ...]) -> None:
        """Rows whose answers are complete: keep their caches for the next turn, then drop them."""
        if not ended:
            return
        kept = {item.uid: self._batch.cached(item.uid) for item in ended if item.keep}
        self._batch.drop({item.uid for item in ended})
        owners = {item.uid: self._rows.pop(item.uid) for item in ended}
        self._count_decoding()
        for item in ended:
            request, choice = owners[item.uid]
            choice.finish_reason = item.reason
            self._entries.choice_complete(request, choice)
        for request in {id(request): request for request, _ in owners.values()}.values():
            if request.done:
                self._end(request.task_id, "Complete")
        for uid, cached in kept.items():
            self._entries.remembered(owners[uid][0], self._remember(cached))

    def _remember(self, cached: CachedSequence) -> bool | None:
        if self._group.rank == 0:
            return self._prefixes.add(cached.tokens, cached.caches)
        self._prefixes.mirror(len(cached.tokens), cached.caches)
        return False

    def _end_or_note(self, task_id: TaskId, result: _Result) -> None:
        """Rank 0 ended a task, which may not even have arrived here."""
        if task_id not in self._tasks:
            self._ended_early[task_id] = result
            return
        request = self._requests.get(task_id) or self._prepared.get(task_id)
        if request is not None:
            self._drop(request)
        self._end(task_id, result)

    def _drop(self, request: Request) -> None:
        rows = {uid for uid, (owner, _) in self._rows.items() if owner is request}
        self._batch.drop(rows)
        for uid in rows:
            del self._rows[uid]
        if self._responses is not None:
            self._responses.forget(request)
        self._entries.cancelled(request)
        self._count_decoding()

    def _end(self, task_id: TaskId, result: _Result) -> None:
        """A task is over on this rank."""
        del self._tasks[task_id]
        self._prepared.pop(task_id, None)
        request = self._requests.pop(task_id, None)
        if result == "Complete" and request is not None:
            self._entries.complete(request)
        outcome = {"Complete": "finish", "Cancelled": "cancel", "Failed": "error"}[result]
        self._tracer.finish(task_id, outcome)
        self._send(TaskStatus(task_id=task_id, status=result))

    # --- admission ---

    def _admit(self, admissions: tuple[Admission, ...], *, barrier: bool) -> None:
        queued = len(self._tasks) - len(self._requests) - len(admissions)
        for admission in admissions:
            request = self._prepared.pop(admission.task_id, None)
            if request is None:
                task, extra = self._tasks[admission.task_id]
                request = self._builder.build(task, extra, admission.prompt)
            request.max_tokens = admission.max_tokens
            request.cached = admission.cached
            self._requests[admission.task_id] = request
            request.in_flight_at_admission = len(self._requests)
            self._entries.admitted(request, queued, len(self._rows))
            self._entries.looked_up(request, admission.hit, enabled=self._prefixes.enabled)
        for admission in admissions:
            request = self._requests[admission.task_id]
            request.admitted_at = time.monotonic()
            if barrier or self._group.size == 1:
                self._wake(request, barrier=barrier)
                barrier = False
            self._entries.prefilling(request)
            self._add_first_row(request, PrefixHit(admission.hit, admission.cached))

    def _wake(self, request: Request, *, barrier: bool) -> None:
        """An idle group waits for all ranks before it begins."""
        self._step_entries.woken()
        self._faults.stall("stall_before_barrier")
        with self._entries.at_barrier(request):
            self._faults.stall("stall_in_barrier")
            if barrier and not self._faults.has("skip_collective"):
                with self._step_entries.at_barrier():
                    self._group.barrier()

    def _add_first_row(self, request: Request, hit: PrefixHit) -> None:
        first, *request.waiting = request.choices
        caches = self._prefixes.caches_for(hit)
        if caches is not None and hit.length == len(request.prompt) - 1:
            self._add_other_choices(request, CachedSequence(caches, request.prompt[:-1]))
        if caches is None:
            caches = fresh_caches(self._loaded.model)
        self._add_row(request, first, caches, hit.length)

    def _add_other_choices(self, request: Request, cached: CachedSequence) -> None:
        """Let the other choices begin from what the first one computed."""
        waiting, request.waiting = request.waiting, []
        for choice in waiting:
            self._add_row(request, choice, cached.copy(), len(cached.tokens))

    def _add_row(self, request: Request, choice: Choice, caches: list[Any], known: int) -> None:
        uid = self._batch.add(
            request.prompt,
            known=known,
            caches=caches,
            max_tokens=request.max_tokens,
            sampler=choice.sampler,
            processors=choice.processors,
            top_logprobs=request.top_logprobs,
        )
        self._rows[uid] = (request, choice)

    # --- steps ---

    def _step(self, lane: int, rows: int, size: int) -> None:
        """One step of one lane: a token for each decoding row, a piece of each unread prompt."""
        self._batch.balance()
        self._steps += 1
        self._step_entries.begin_step(self._steps)
        self._faults.stall("delay")
        if self._steps == 3:
            self._faults.stall("stall_step")
        self._step_entries.step("generator_step_enter", self._steps, self._requests)
        began = time.monotonic()
        with self._step_entries.computing():
            sampled = self._batch.decode(lane)
        if sampled:
            if self._tracer.active:
                self._tracer.step([self._rows[item.uid][0].task_id for item in sampled], began)
            self._on_sampled(sampled)
        if self._batch.has_prompts(lane):
            if self._responses is not None:
                self._responses.flush()
            with self._step_entries.computing():
                progress = self._batch.read_prompts(lane, rows, size)
            for item in progress:
                self._on_prompt(item)
        self._step_entries.step("generator_step_exit", self._steps, self._requests)

    def _on_prompt(self, item: PromptProgress) -> None:
        request, choice = self._rows[item.uid]
        if choice.index != 0:
            return
        self._entries.prompt_progress(request, item.done)
        if self._responses is not None:
            self._responses.prompt_progress(request, item.done, ready=item.ready)
        if item.ready:
            self._step_entries.prompt_read()
            self._on_prompt_read(request, item.uid)
            self._entries.waiting_for_first_token(request)

    def _on_prompt_read(self, request: Request, uid: int) -> None:
        """All but the last token of the prompt is computed and can be shared."""
        if request.waiting:
            self._add_other_choices(request, self._batch.cached(uid))
        elif self._prefixes.enabled and not self._can_trim:
            # These caches cannot be trimmed later, so the next turn needs this very state.
            self._remember(self._batch.cached(uid))

    def _on_sampled(self, sampled: list[SampledToken]) -> None:
        """Count tokens; rank 0, which sees them, also writes the answers."""
        now = time.monotonic()
        urgent = False
        for item in sampled:
            request, choice = self._rows[item.uid]
            if not request.first_token_at:
                urgent = True
                request.first_token_at = now
                self._entries.first_token(request)
            request.last_token_at = now
            choice.tokens += 1
            if self._responses is not None:
                self._responses.write(request, choice, item)
            self._entries.token(request, choice)
            if choice.finish_reason is not None:
                self._on_answered(item.uid, request, choice)
        if self._responses is not None:
            self._responses.flush(now, urgent=urgent)

    def _on_answered(self, uid: int, request: Request, choice: Choice) -> None:
        """Only rank 0 knows that an answer is complete; the next order ends its row everywhere."""
        keep = self._prefixes.enabled and choice.index == 0
        self._ended.append(RowEnded(uid, choice.finish_reason or "stop", keep))
        if request.done and self._responses is not None:
            self._responses.conclude(request)

    def _count_decoding(self) -> None:
        decoding = [
            request.owner
            for request, choice in self._rows.values()
            if request.first_token_at and choice.finish_reason is None
        ]
        self._entries.still_decoding(decoding)
