"""The entries that requests leave in the flight recorder on their way through the engine.

Counts only, never content. Decides nothing.
"""

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.core as mx

from skulkd.runner.group import Group
from skulkd.runner.phases import Brief, Owner, PhaseRecorder, Span
from skulkd.runner.prefix_cache import Hit
from skulkd.runner.request import Choice, Request
from skulkd.runner.tracing import Tracer
from skulkd.wire.ids import TaskId

# Steps and tokens between two progress entries.
_PROGRESS_EVERY = 25
_PIECES_EVERY = 4
# Steps after a prompt that are written in detail: one queues the first token, one reads it.
_DETAILED_STEPS = 2
_NOTHING = nullcontext()


class StepPhases:
    """What all ranks do together, and the steps themselves."""

    def __init__(self, recorder: PhaseRecorder, group: Group) -> None:
        self._recorder = recorder
        self._staged = group.sharding == "pipeline"
        self._about = {"rank": group.rank, "world_size": group.size}
        self._detailed_until = 0
        self._awaits_token = False

    def agreeing(self, candidates: int) -> AbstractContextManager[None]:
        return self._recorder.inside(
            "task_agreement", "batch_mx_all_gather_tasks", candidate_count=candidates
        )

    def agreed(
        self, agreed: int, different: int, queued: int, cancelled: tuple[TaskId, ...]
    ) -> None:
        self._recorder.point(
            "task_agreement",
            "batch_tasks_agreed",
            agreed_count=agreed,
            different_count=different,
            queued_count=queued,
        )
        if cancelled:
            self._recorder.point(
                "cancel_observed", "batch_cancellations_agreed", task_ids=list(cancelled)
            )

    def computing(self) -> Brief:
        """Around a step of the model: queueing may wait for the others, too."""
        if self._staged:
            return self._recorder.brief("pipeline_step", self._about, "late")
        return self._recorder.brief("model_step", entry="never")

    def wait(self, name: str, array: Any) -> None:
        """Wait for an array; in a pipeline that shows in the recorder when it takes long."""
        if self._staged:
            with self._recorder.brief(name, self._about):
                mx.eval(array)
        else:
            with self._recorder.brief("model_eval", entry="never"):
                mx.eval(array)

    def queued(self, name: str) -> AbstractContextManager[object]:
        """Around a message that is put into the graph: instant, so only shown as a detail."""
        if not self._recorder.details:
            return _NOTHING
        return self._recorder.brief(name, self._about)

    def at_barrier(self) -> Brief:
        """In the collective itself; the entry was written when the barrier was entered."""
        return self._recorder.brief("mx_barrier", entry="never")

    def begin_step(self, number: int) -> None:
        self._recorder.step = number
        self._recorder.details = number <= self._detailed_until

    def woken(self) -> None:
        """An idle group begins: its first piece of prompt is written down in every detail.

        More would push older entries out, and cost time on every step.
        """
        self._detailed_until = self._recorder.step + 1
        self._awaits_token = True

    def prompt_read(self) -> None:
        """The same for the steps that bring the first token."""
        if self._awaits_token:
            self._awaits_token = False
            self._detailed_until = self._recorder.step + _DETAILED_STEPS

    def step(self, event: str, number: int, active: Collection[TaskId]) -> None:
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

    def __init__(self, recorder: PhaseRecorder, group: Group, tracer: Tracer) -> None:
        self._recorder = recorder
        self._group = group
        self._tracer = tracer
        self._spans: dict[TaskId, Span] = {}
        self._decoding: Span | None = None

    def admitted(self, request: Request, queue_depth: int, batch_size: int) -> None:
        self._tracer.mark(
            request.task_id, "admitted_to_batch", "lifecycle", batch_size=batch_size + 1
        )
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
            matched_index=hit.number,
        )
        self._tracer.mark(
            request.task_id, "kv_cache_result", "kv_cache", prefix_hit_length=hit.length
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
        self._tracer.begin(request.task_id, "prefill")
        rank, size, total = self._group.rank, self._group.size, len(request.prompt)
        pipeline = self._group.sharding == "pipeline"
        self._spans[request.task_id] = self._recorder.enter(
            "prefill_pipeline" if pipeline else "prefill_stream",
            "pipeline_parallel_prefill" if pipeline else "stream_generate_prefill",
            owner=request.owner,
            memory=True,
            rank=rank,
            group_size=size,
            prompt_tokens=total,
        )
        if pipeline:
            self._recorder.point(
                "prefill_pipeline",
                "pipeline_prefill_start",
                owner=request.owner,
                memory=True,
                rank=rank,
                world_size=size,
                prompt_tokens=total,
            )

    def prompt_progress(self, request: Request, done: int) -> None:
        """A piece of the prompt is read; the first, the last and every fourth are written."""
        request.pieces += 1
        total = len(request.prompt)
        if self._group.sharding != "pipeline":
            return
        if request.pieces == 1 or request.pieces % _PIECES_EVERY == 0 or done >= total - 1:
            self._recorder.point(
                "prefill_pipeline",
                "pipeline_prefill_chunk",
                owner=request.owner,
                rank=self._group.rank,
                chunk_index=request.pieces - 1,
                processed=done,
                total=total,
            )

    def waiting_for_first_token(self, request: Request) -> None:
        self._tracer.end(request.task_id, "prefill", "prefill", prompt_tokens=len(request.prompt))
        if self._group.sharding == "pipeline":
            elapsed_s = time.monotonic() - request.admitted_at
            self._recorder.point(
                "prefill_pipeline",
                "pipeline_prefill_complete",
                owner=request.owner,
                memory=True,
                rank=self._group.rank,
                processed=len(request.prompt),
                total=len(request.prompt),
                elapsed_ms=round(elapsed_s * 1000, 3),
            )
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
        self._tracer.mark(request.task_id, "first_token", "decode")
        self._tracer.begin(request.task_id, "decode")
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

    def choice_complete(self, request: Request, choice: Choice) -> None:
        self._recorder.point(
            "completion",
            "generation_complete",
            owner=request.owner,
            memory=True,
            completion_tokens=choice.tokens,
            finish_reason=choice.finish_reason,
        )

    def remembered(self, request: Request, replaced: bool | None) -> None:
        """What the prefix cache did with an answer; None: nothing."""
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
