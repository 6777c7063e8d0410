"""The engine's entries in the flight recorder: counts only, never content. Decides nothing."""

import time
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.core as mx

from skulkd.runner.generation.request import Choice, Request
from skulkd.runner.group.group import RankGroup
from skulkd.runner.recording.recorder import Owner, PhaseRecorder, RecordedWait, Span
from skulkd.wire.diagnostics import RunnerPhase
from skulkd.wire.ids import TaskId

# Steps and tokens between two progress entries.
_PROGRESS_EVERY = 25
_PIECES_EVERY = 4
# Steps after a prompt that are recorded in detail: one queues the first token, one reads it.
_DETAILED_STEPS = 2
_NOTHING = nullcontext()


class StepEntries:
    """Entries about steps and agreements, which belong to no single request."""

    def __init__(self, recorder: PhaseRecorder, group: RankGroup) -> None:
        self._recorder = recorder
        self._staged = group.sharding == "pipeline"
        self._about = {"rank": group.rank, "world_size": group.size}
        self._detailed_until = 0
        self._awaits_token = False

    def agreeing(self, candidates: int) -> AbstractContextManager[None]:
        return self._recorder.span(
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

    def computing(self) -> RecordedWait:
        """Around a step of the model: queueing may wait for other ranks too."""
        if self._staged:
            return self._recorder.wait("pipeline_step", self._about, "late")
        return self._recorder.wait("model_step", entry="never")

    def wait(self, name: str, array: Any) -> None:
        """Wait for an array; in a pipeline a long wait becomes an entry."""
        if self._staged:
            with self._recorder.wait(name, self._about):
                mx.eval(array)
        else:
            with self._recorder.wait("model_eval", entry="never"):
                mx.eval(array)

    def queued(self, name: str) -> AbstractContextManager[object]:
        """Around queueing a message, which is instant: only an entry when details are wanted."""
        if not self._recorder.details:
            return _NOTHING
        return self._recorder.wait(name, self._about)

    def at_barrier(self) -> RecordedWait:
        """Around the collective itself; the request's barrier entry is written by then."""
        return self._recorder.wait("mx_barrier", entry="never")

    def begin_step(self, number: int) -> None:
        self._recorder.step = number
        self._recorder.details = number <= self._detailed_until

    def woken(self) -> None:
        """An idle group starts: its first prefill step is recorded in detail.

        More would push older entries out, and cost time on every step.
        """
        self._detailed_until = self._recorder.step + 1
        self._awaits_token = True

    def prompt_read(self) -> None:
        """The steps that compute the first token are recorded in detail too."""
        if self._awaits_token:
            self._awaits_token = False
            self._detailed_until = self._recorder.step + _DETAILED_STEPS

    def step(self, event: str, number: int, active: Collection[TaskId]) -> None:
        """The first and every 25th step are recorded."""
        if number == 1 or number % _PROGRESS_EVERY == 0:
            self._recorder.point(
                "decode_stream",
                event,
                active_task_ids=list(active),
                active_task_count=len(active),
                step_count=number,
            )


class RequestEntries:
    """A request is in one span at a time; all decoding requests share one more."""

    def __init__(self, recorder: PhaseRecorder, group: RankGroup) -> None:
        self._recorder = recorder
        self._rank = group.rank
        self._size = group.size
        self._pipeline = group.sharding == "pipeline"
        self._prefill: RunnerPhase = "prefill_pipeline" if self._pipeline else "prefill_stream"
        self._spans: dict[TaskId, Span] = {}
        self._decoding: Span | None = None

    def admitted(self, request: Request, queue_depth: int, batch_size: int) -> None:
        attrs: dict[str, Any] = {"queue_depth": queue_depth, "batch_size": batch_size}
        self._point(request, "task_submission", "batch_queue_admitted", **attrs)

    def looked_up(self, request: Request, number: int, *, enabled: bool) -> None:
        """The search for a cached prefix; `number` is its entry, or -1."""
        total, cached = len(request.prompt), request.cached
        attrs: dict[str, Any] = {"cache_enabled": enabled, "prompt_tokens": total}
        self._enter(request, "kv_cache_lookup", "prefix_cache_lookup", **attrs)
        self._leave(request)
        self._point(
            request,
            "kv_cache_lookup",
            "kv_cache_result",
            prefix_hit_length=cached,
            uncached_prompt_tokens=total - cached,
            total_prompt_tokens=total,
            matched_index=number,
        )

    def at_barrier(self, request: Request) -> AbstractContextManager[None]:
        return self._recorder.span(
            "prefill_barrier",
            "prefill_mx_barrier",
            owner=request.owner,
            memory=True,
            rank=self._rank,
            group_size=self._size,
            prompt_tokens=len(request.prompt),
        )

    def prefilling(self, request: Request) -> None:
        detail = "pipeline_parallel_prefill" if self._pipeline else "stream_generate_prefill"
        attrs: dict[str, Any] = {"rank": self._rank, "prompt_tokens": len(request.prompt)}
        self._enter(request, self._prefill, detail, group_size=self._size, **attrs)
        if self._pipeline:
            attrs["world_size"] = self._size
            self._point(request, self._prefill, "pipeline_prefill_start", memory=True, **attrs)

    def prompt_progress(self, request: Request, done: int) -> None:
        """A piece of the prompt is read; the first, the last and every fourth are recorded."""
        index, total = request.pieces, len(request.prompt)
        request.pieces += 1
        if self._pipeline and (
            index == 0 or request.pieces % _PIECES_EVERY == 0 or done >= total - 1
        ):
            attrs: dict[str, Any] = {
                "rank": self._rank,
                "chunk_index": index,
                "processed": done,
                "total": total,
            }
            self._point(request, self._prefill, "pipeline_prefill_chunk", **attrs)

    def waiting_for_first_token(self, request: Request) -> None:
        if self._pipeline:
            total = len(request.prompt)
            elapsed_ms = round((time.monotonic() - request.admitted_at) * 1000, 3)
            self._point(
                request,
                self._prefill,
                "pipeline_prefill_complete",
                memory=True,
                rank=self._rank,
                processed=total,
                total=total,
                elapsed_ms=elapsed_ms,
            )
        self._leave(request)
        detail = "stream_generate_first_token"
        self._enter(request, "decode_wait_first_token", detail, max_tokens=request.max_tokens)

    def first_token(self, request: Request) -> None:
        self._leave(request)
        if self._decoding is None:
            self._decoding = self._recorder.enter(
                "decode_stream", "batch_decode", owner=request.owner
            )
        wait_s = round(request.first_token_at - request.admitted_at, 6)
        event = "batch_first_token"
        self._point(request, "decode_stream", event, memory=True, wait_seconds=wait_s)

    def token(self, request: Request, choice: Choice) -> None:
        """The first and every 25th token are recorded."""
        if choice.tokens == 1 or choice.tokens % _PROGRESS_EVERY == 0:
            event = "decode_token_progress"
            self._point(request, "decode_stream", event, completion_tokens=choice.tokens)

    def still_decoding(self, owners: list[Owner]) -> None:
        """The shared span names one of the decoding requests, and ends with the last."""
        if self._decoding is None:
            return
        if not owners:
            self._recorder.leave(self._decoding)
            self._decoding = None
        elif self._decoding.owner not in owners:
            self._decoding.owner = owners[0]

    def choice_complete(self, request: Request, choice: Choice) -> None:
        attrs: dict[str, Any] = {
            "completion_tokens": choice.tokens,
            "finish_reason": choice.finish_reason,
        }
        self._point(request, "completion", "generation_complete", memory=True, **attrs)

    def complete(self, request: Request) -> None:
        self._point(request, "completion", "batch_decode_complete", memory=True)

    def remembered(self, request: Request, replaced: bool | None) -> None:
        """The prefix cache kept an answer, maybe in place of a shorter one; None: it did not."""
        if replaced is not None:
            event = "kv_cache_update" if replaced else "kv_cache_add"
            ratio = round(request.cached / len(request.prompt), 4)
            attrs: dict[str, Any] = {"prefix_hit_length": request.cached, "hit_ratio": ratio}
            self._point(request, "kv_cache_lookup", event, **attrs)

    def cancelled(self, request: Request) -> None:
        if (span := self._spans.pop(request.task_id, None)) is not None:
            self._recorder.abandon(span)
            self._point(request, "cancel_observed", "prefill_cancelled", span.detail)
        self._point(request, "cancel_observed", "batch_cancel_applied", memory=True)

    def forget(self) -> None:
        """Close all spans; no request goes on."""
        for span in self._spans.values():
            self._recorder.abandon(span)
        self._spans.clear()
        self.still_decoding([])

    def _point(
        self,
        request: Request,
        phase: RunnerPhase,
        event: str,
        detail: str | None = None,
        *,
        memory: bool = False,
        **attrs: object,
    ) -> None:
        self._recorder.point(phase, event, detail, owner=request.owner, memory=memory, **attrs)

    def _enter(self, request: Request, phase: RunnerPhase, detail: str, **attrs: object) -> None:
        span = self._recorder.enter(phase, detail, owner=request.owner, memory=True, **attrs)
        self._spans[request.task_id] = span

    def _leave(self, request: Request) -> None:
        if (span := self._spans.pop(request.task_id, None)) is not None:
            self._recorder.leave(span)
