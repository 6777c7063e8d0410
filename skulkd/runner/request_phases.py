"""The entries that requests leave in the flight recorder on their way through the engine.

Counts only, never content. Decides nothing.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from skulkd.runner.group import Group
from skulkd.runner.phases import Owner, PhaseRecorder, Span
from skulkd.runner.prefix_cache import Hit
from skulkd.runner.request import Choice, Request
from skulkd.runner.scheduler import StepPlan
from skulkd.wire.ids import TaskId

# Steps and tokens between two progress entries.
_PROGRESS_EVERY = 25


class StepPhases:
    """What all ranks do together, and the steps themselves."""

    def __init__(self, recorder: PhaseRecorder) -> None:
        self._recorder = recorder

    def agreeing(self, plan: StepPlan) -> AbstractContextManager[None]:
        return self._recorder.inside(
            "task_agreement", "batch_mx_all_gather_tasks", candidate_count=len(plan.admit)
        )

    def agreed(self, wanted: StepPlan, plan: StepPlan, queued: int) -> None:
        self._recorder.point(
            "task_agreement",
            "batch_tasks_agreed",
            agreed_count=len(plan.admit),
            different_count=len(set(wanted.admit) ^ set(plan.admit)),
            queued_count=queued,
        )
        if plan.cancel:
            self._recorder.point(
                "cancel_observed", "batch_cancellations_agreed", task_ids=list(plan.cancel)
            )

    def step(self, event: str, number: int, active: tuple[TaskId, ...]) -> None:
        """Every step asks; the first and every 25th are written."""
        if number == 1 or number % _PROGRESS_EVERY == 0:
            self._recorder.point(
                "decode_stream",
                event,
                active_task_ids=list(active),
                active_task_count=len(active),
                step_count=number,
            )


class RequestPhases:
    """A request is in one span at a time; all that decode share one more."""

    def __init__(self, recorder: PhaseRecorder, group: Group) -> None:
        self._recorder = recorder
        self._group = group
        self._spans: dict[TaskId, Span] = {}
        self._decoding: Span | None = None

    def admitted(self, request: Request, queue_depth: int, batch_size: int) -> None:
        self._recorder.point(
            "task_submission",
            "batch_queue_admitted",
            owner=request.owner,
            queue_depth=queue_depth,
            batch_size=batch_size,
        )

    def cancelled(self, request: Request) -> None:
        if (span := self._spans.pop(request.task_id, None)) is not None:
            self._recorder.abandon(span)
            self._recorder.point(
                "cancel_observed", "prefill_cancelled", span.detail, owner=request.owner
            )
        self._recorder.point(
            "cancel_observed", "batch_cancel_applied", owner=request.owner, memory=True
        )

    # --- prompt ---

    def look_up(self, request: Request, find: Callable[[], Hit], *, enabled: bool) -> Hit:
        """Search for a known beginning of the prompt."""
        total = len(request.prompt)
        with self._recorder.inside(
            "kv_cache_lookup",
            "prefix_cache_lookup",
            owner=request.owner,
            memory=True,
            cache_enabled=enabled,
            prompt_tokens=total,
        ):
            hit = find()
        self._recorder.point(
            "kv_cache_lookup",
            "kv_cache_result",
            owner=request.owner,
            prefix_hit_length=hit.length,
            uncached_prompt_tokens=total - hit.length,
            total_prompt_tokens=total,
            matched_index=hit.index,
        )
        return hit

    def at_barrier(self, request: Request) -> AbstractContextManager[None]:
        return self._recorder.inside(
            "prefill_barrier",
            "prefill_mx_barrier",
            owner=request.owner,
            memory=True,
            rank=self._group.rank,
            group_size=self._group.size,
            prompt_tokens=len(request.prompt),
        )

    def prefilling(self, request: Request) -> None:
        self._spans[request.task_id] = self._recorder.enter(
            "prefill_stream",
            "stream_generate_prefill",
            owner=request.owner,
            memory=True,
            rank=self._group.rank,
            group_size=self._group.size,
            prompt_tokens=len(request.prompt),
        )

    def waiting_for_first_token(self, request: Request) -> None:
        self._leave(request)
        self._spans[request.task_id] = self._recorder.enter(
            "decode_wait_first_token",
            "stream_generate_first_token",
            owner=request.owner,
            memory=True,
            max_tokens=request.max_tokens,
        )

    # --- answer ---

    def first_token(self, request: Request) -> None:
        self._leave(request)
        if self._decoding is None:
            self._decoding = self._recorder.enter(
                "decode_stream", "batch_decode", owner=request.owner
            )
        self._recorder.point(
            "decode_stream",
            "batch_first_token",
            owner=request.owner,
            memory=True,
            wait_seconds=round(request.first_token_at - request.admitted_at, 6),
        )

    def token(self, request: Request, choice: Choice) -> None:
        """Every token asks; the first and every 25th are written."""
        if choice.tokens == 1 or choice.tokens % _PROGRESS_EVERY == 0:
            self._recorder.point(
                "decode_stream",
                "decode_token_progress",
                owner=request.owner,
                completion_tokens=choice.tokens,
            )

    def still_decoding(self, owners: list[Owner]) -> None:
        """Who decodes now: the shared span names one of them, and ends with the last."""
        if self._decoding is None:
            return
        if not owners:
            self._recorder.leave(self._decoding)
            self._decoding = None
        elif self._decoding.owner not in owners:
            self._decoding.owner = owners[0]

    def choice_complete(
        self, request: Request, choice: Choice, *, replaced: bool | None = None
    ) -> None:
        """`replaced` says what the prefix cache did with it; None: nothing."""
        self._recorder.point(
            "completion",
            "generation_complete",
            owner=request.owner,
            memory=True,
            completion_tokens=choice.tokens,
            finish_reason=choice.finish_reason,
        )
        if replaced is not None:
            self._recorder.point(
                "kv_cache_lookup",
                "kv_cache_update" if replaced else "kv_cache_add",
                owner=request.owner,
                prefix_hit_length=request.cached,
                hit_ratio=round(request.cached / len(request.prompt), 4),
            )

    def complete(self, request: Request) -> None:
        self._recorder.point(
            "completion", "batch_decode_complete", owner=request.owner, memory=True
        )

    def forget(self) -> None:
        """Nothing goes on any more."""
        for span in self._spans.values():
            self._recorder.abandon(span)
        self._spans.clear()
        self.still_decoding([])

    def _leave(self, request: Request) -> None:
        if (span := self._spans.pop(request.task_id, None)) is not None:
            self._recorder.leave(span)
