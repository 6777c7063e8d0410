"""The step loop: requests join and leave between two steps of the batch.

Runs the same for one rank and for many: who takes part is in the plan, which the group agrees
on. Knows nothing of pipes or of the runner's life before and after.
"""

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from skulkd.runner.answers import AnswerWriter
from skulkd.runner.batch import Batch, Kept, run_alone
from skulkd.runner.caches import fresh_caches, shortened
from skulkd.runner.group import Group
from skulkd.runner.load import LoadedModel
from skulkd.runner.pacing import PrefillPacer
from skulkd.runner.phases import PhaseRecorder
from skulkd.runner.prefix_cache import PrefixCache
from skulkd.runner.protocol import (
    FromRunner,
    GenerationOptions,
    Output,
    OutputItem,
    PrefillProgress,
    RunnerOptions,
    TaskStatus,
)
from skulkd.runner.request import Choice, Request, RequestBuilder
from skulkd.runner.request_phases import RequestPhases, StepPhases
from skulkd.runner.sampling import greedy
from skulkd.runner.scheduler import Scheduler, StepPlan
from skulkd.runner.usage import stats_of, usage_of
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import TextGeneration

_WARMUP_PROMPT = "hello " * 32
_WARMUP_PROMPT_TOKENS = 32
_WARMUP_TOKENS = 2


class Engine:
    """`send` takes output and task reports; it may wait, but only for the pipe."""

    def __init__(
        self,
        loaded: LoadedModel,
        options: RunnerOptions,
        group: Group,
        recorder: PhaseRecorder,
        send: Callable[[FromRunner], None],
    ) -> None:
        self._loaded = loaded
        self._group = group
        self._common = StepPhases(recorder)
        self._phases = RequestPhases(recorder, group)
        self._send = send
        self._builder = RequestBuilder(loaded, options, recorder)
        self._writer = AnswerWriter(loaded.tokenizer, recorder)
        self._scheduler = Scheduler(options.max_concurrent)
        self._prefixes = PrefixCache(options.prefix_cache_bytes)
        self._can_shorten = shortened(fresh_caches(loaded.model), 0) is not None
        self._batch = Batch(
            loaded.model,
            slots=options.max_concurrent,
            stop_tokens=loaded.tokenizer.eos_token_ids,
            pacer=PrefillPacer(options.prefill_step),
        )
        self._requests: dict[TaskId, Request] = {}
        self._rows: dict[int, tuple[Request, Choice]] = {}
        self._steps = 0

    @property
    def busy(self) -> bool:
        return bool(self._scheduler)

    @property
    def tasks(self) -> list[TaskId]:
        """Everything accepted and not yet answered."""
        return list(self._requests)

    def warm_up(self) -> int:
        """A first short generation, so that no client pays for first times. Its token count."""
        prompt = [int(token) for token in self._loaded.tokenizer.encode(_WARMUP_PROMPT)]
        uid = self._batch.add(
            prompt[:_WARMUP_PROMPT_TOKENS],
            known=0,
            caches=fresh_caches(self._loaded.model),
            max_tokens=_WARMUP_TOKENS,
            sampler=greedy,
            processors=[],
        )
        return run_alone(self._batch, uid)

    def submit(self, task: TextGeneration, extra: GenerationOptions) -> None:
        """Accept a request. Raises BadRequest; nothing was computed for it then."""
        if not self.busy:
            mx.reset_peak_memory()
        request = self._builder.build(task, extra)
        self._requests[task.task_id] = request
        self._scheduler.submit(task.task_id, len(request.choices))

    def cancel(self, task_id: TaskId) -> bool:
        """Whether the task is here; it ends before the next step."""
        return self._scheduler.cancel(task_id)

    def step(self) -> None:
        """Change membership as planned, then compute one step."""
        plan = self._scheduler.plan()
        if plan:
            self._apply(self._agreed(plan))
        if not self._rows:
            return
        self._steps += 1
        self._common.step("generator_step_enter", self._steps, self._scheduler.active)
        prompts, tokens = self._batch.step()
        for item in prompts:
            self._on_prompt(item)
        if tokens:
            self._on_tokens(tokens)
        self._common.step("generator_step_exit", self._steps, self._scheduler.active)

    def close(self) -> None:
        """Let go of everything; open requests get no more output."""
        self._phases.forget()
        self._batch.drop(list(self._rows))
        self._rows.clear()
        self._requests.clear()
        self._batch.close()
        self._prefixes.clear()

    # --- membership ---

    def _agreed(self, plan: StepPlan) -> StepPlan:
        with self._common.agreeing(plan):
            agreed = self._group.agree(plan)
        self._scheduler.apply(agreed)
        self._common.agreed(plan, agreed, self._scheduler.queued)
        return agreed

    def _apply(self, plan: StepPlan) -> None:
        for task_id in plan.cancel:
            self._drop(self._requests.pop(task_id))
        for task_id in plan.admit:
            self._admit(self._requests[task_id])

    def _drop(self, request: Request) -> None:
        rows = [uid for uid, (owner, _) in self._rows.items() if owner is request]
        if rows:
            self._batch.drop(rows)
        for uid in rows:
            del self._rows[uid]
        self._phases.cancelled(request)
        self._count_decoding()
        self._send(TaskStatus(task_id=request.task_id, status="Cancelled"))

    def _admit(self, request: Request) -> None:
        self._phases.admitted(request, self._scheduler.queued, len(self._rows))
        request.admitted_at = time.monotonic()
        hit = self._phases.look_up(
            request, lambda: self._prefixes.find(request.prompt), enabled=self._prefixes.enabled
        )
        request.cached = hit.length
        with self._phases.at_barrier(request):
            self._group.barrier()
        self._phases.prefilling(request)
        first, *request.waiting = request.choices
        if hit.caches is not None and hit.length == len(request.prompt) - 1:
            self._spread(request, Kept(hit.caches, request.prompt[:-1]))
        caches = hit.caches if hit.caches is not None else fresh_caches(self._loaded.model)
        self._add_row(request, first, caches, hit.length)

    def _add_row(self, request: Request, choice: Choice, caches: list[Any], known: int) -> None:
        uid = self._batch.add(
            request.prompt,
            known=known,
            caches=caches,
            max_tokens=request.max_tokens,
            sampler=choice.sampler,
            processors=choice.processors,
        )
        self._rows[uid] = (request, choice)

    # --- prompts ---

    def _on_prompt(self, item: Any) -> None:
        request, choice = self._rows[item.uid]
        if choice.index != 0:
            return
        done, _ = item.progress
        total = len(request.prompt)
        self._send(
            PrefillProgress(
                task_id=request.task_id, processed=min(request.cached + done, total), total=total
            )
        )
        if item.end_of_prompt:
            self._phases.waiting_for_first_token(request)
        elif item.end_of_segment:
            self._prompt_computed(request, item.uid)

    def _prompt_computed(self, request: Request, uid: int) -> None:
        """All but the last token of the prompt is there: the moment to share it."""
        if request.waiting:
            self._spread(request, self._batch.kept(uid))
        elif self._prefixes.enabled and not self._can_shorten:
            # These caches cannot be cut back later, so the next turn needs this very state.
            kept = self._batch.kept(uid)
            self._prefixes.add(kept.tokens, kept.caches)

    def _spread(self, request: Request, kept: Kept) -> None:
        """Let the other choices begin from what the first one computed."""
        waiting, request.waiting = request.waiting, []
        for choice in waiting:
            self._add_row(request, choice, kept.copy(), len(kept.tokens))

    # --- tokens ---

    def _on_tokens(self, responses: list[Any]) -> None:
        now = time.monotonic()
        items: dict[TaskId, list[OutputItem]] = {}
        for response in responses:
            request, choice = self._rows[response.uid]
            if not request.first_token_at:
                request.first_token_at = now
                self._phases.first_token(request)
            request.last_token_at = now
            item = self._writer.token(request, choice, response)
            if item is not None:
                items.setdefault(request.task_id, []).append(item)
            self._phases.token(request, choice)
            if choice.finish_reason is not None:
                self._row_ended(request, choice, response)
        for task_id, said in items.items():
            self._deliver(self._requests[task_id], said)

    def _row_ended(self, request: Request, choice: Choice, response: Any) -> None:
        uid = response.uid
        kept = None
        if response.finish_reason is None:
            # Ended by its text: the batch does not know yet.
            if self._prefixes.enabled:
                kept = self._batch.kept(uid)
            self._batch.drop([uid])
        elif self._prefixes.enabled:
            kept = Kept(response.prompt_cache, list(response.all_tokens))
        del self._rows[uid]
        self._count_decoding()
        replaced = None
        if kept is not None and choice.index == 0:
            replaced = self._prefixes.add(kept.tokens, kept.caches)
        self._phases.choice_complete(request, choice, replaced=replaced)

    def _deliver(self, request: Request, items: list[OutputItem]) -> None:
        if not request.done:
            self._send(Output(task_id=request.task_id, items=items))
            return
        self._phases.complete(request)
        self._send(
            Output(
                task_id=request.task_id,
                items=items,
                usage=usage_of(request),
                stats=stats_of(request, mx.get_peak_memory()),
            )
        )
        del self._requests[request.task_id]
        self._scheduler.finished(request.task_id)
        self._send(TaskStatus(task_id=request.task_id, status="Complete"))

    def _count_decoding(self) -> None:
        decoding = [request.owner for request, _ in self._rows.values() if request.first_token_at]
        self._phases.still_decoding(decoding)
