"""From tokens to messages for the supervisor: text, logprobs, usage and speeds. Rank 0 only.

A message per token would cost more than the token on a small model, so tokens are sent together,
at most 16 ms after they were read.
"""

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from skulkd.runner.generation.request import Choice, Request
from skulkd.runner.generation.rows import SampledToken
from skulkd.runner.output.logprobs import TokenDescriber
from skulkd.runner.output.text_stream import Delta
from skulkd.runner.protocol import FromRunner, Output, OutputItem, PrefillProgress
from skulkd.runner.recording.recorder import PhaseRecorder
from skulkd.wire.base import Memory
from skulkd.wire.chat import (
    CompletionTokensDetails,
    FinishReason,
    GenerationStats,
    PromptTokensDetails,
    Usage,
)

SEND_EVERY_S = 0.016


class ResponseWriter:
    """Keeps what is unsent; the state of an answer is in its choice."""

    def __init__(
        self,
        tokenizer: Any,
        recorder: PhaseRecorder,
        send: Callable[[FromRunner], None],
        *,
        serving_batches: bool,
    ) -> None:
        self._describer = TokenDescriber(tokenizer)
        self._stop_tokens = frozenset(int(token) for token in tokenizer.eos_token_ids)
        self._recorder = recorder
        self._send = send
        self._serving_batches = serving_batches
        self._unsent: dict[int, Request] = {}
        self._prompt_read: set[int] = set()
        self._sent_at = 0.0

    def prompt_progress(self, request: Request, done: int, *, ready: bool) -> None:
        """The end of a prompt is sent with the first token, which is only a step away."""
        if ready:
            self._prompt_read.add(id(request))
        else:
            total = len(request.prompt)
            self._send(PrefillProgress(task_id=request.task_id, processed=done, total=total))

    def write(self, request: Request, choice: Choice, sampled: SampledToken) -> None:
        """Add a token to an answer, for the next `flush`. Sets `finish_reason` at the end."""
        self._unsent[id(request)] = request
        token, stream = sampled.token, choice.stream
        choice.unsent_tokens += 1
        if stream.in_reasoning:
            choice.reasoning_tokens += 1
        if token is None or token in self._stop_tokens:
            # The token that ends the answer is not text.
            self._finish(request, choice, "stop")
            return
        if sampled.logprobs is not None:
            choice.held_logprobs.append(self._describer.describe(token, sampled.logprobs))
        choice.detokenizer.add_token(token)
        delta = stream.push(choice.detokenizer.last_segment)
        if delta.content or delta.reasoning:
            _append(choice, delta)
            _release_logprobs(choice)
        if stream.ended:
            # Tokens that only made up the stop string are not part of the answer.
            choice.held_logprobs.clear()
            self._finish(request, choice, "stop")
        elif choice.tokens >= request.max_tokens:
            self._finish(request, choice, "length")

    def flush(self, now: float | None = None, *, urgent: bool = True) -> None:
        """Send what is written, if it is due or urgent."""
        now = time.monotonic() if now is None else now
        if not self._unsent or not (urgent or now - self._sent_at >= SEND_EVERY_S):
            return
        self._sent_at = now
        for request in self._unsent.values():
            self._send_prompt_read(request)
            if items := _items(request):
                self._send(Output(task_id=request.task_id, items=items))
        self._unsent.clear()

    def conclude(self, request: Request) -> None:
        """Send the rest of an answer that is complete."""
        self._unsent.pop(id(request), None)
        self._send_prompt_read(request)
        stats = stats_of(request, mx.get_peak_memory(), serving_batches=self._serving_batches)
        self._send(
            Output(
                task_id=request.task_id,
                items=_items(request),
                usage=usage_of(request),
                stats=stats,
                queued_s=request.admitted_at - request.accepted_at,
            )
        )

    def forget(self, request: Request) -> None:
        """Send nothing more of this answer."""
        self._unsent.pop(id(request), None)
        self._prompt_read.discard(id(request))

    def _send_prompt_read(self, request: Request) -> None:
        if id(request) in self._prompt_read:
            self._prompt_read.remove(id(request))
            total = len(request.prompt)
            self._send(PrefillProgress(task_id=request.task_id, processed=total, total=total))

    def _finish(self, request: Request, choice: Choice, reason: FinishReason) -> None:
        stream = choice.stream
        _release_logprobs(choice)
        if not stream.stops.stopped:
            choice.detokenizer.finalize()
            _append(choice, stream.push(choice.detokenizer.last_segment))
        if stream.tools is None:
            _append(choice, stream.finish())
        else:
            with self._recorder.span("parser", "apply_all_parsers", owner=request.owner):
                _append(choice, stream.finish())
        choice.finish_reason = "tool_calls" if stream.calls and reason == "stop" else reason


def _append(choice: Choice, delta: Delta) -> None:
    choice.unsent_text += delta.content
    choice.unsent_reasoning += delta.reasoning


def _release_logprobs(choice: Choice) -> None:
    """The text of these tokens is decided: they belong to the answer."""
    if choice.held_logprobs:
        choice.unsent_logprobs += choice.held_logprobs
        choice.held_logprobs.clear()


def _items(request: Request) -> list[OutputItem]:
    return [item for choice in request.choices if (item := _item(choice))]


def _item(choice: Choice) -> OutputItem | None:
    """What was not sent yet, if a client could see it."""
    visible = choice.unsent_text or choice.unsent_reasoning or choice.finish_reason
    if not visible or choice.end_sent:
        return None
    choice.end_sent = choice.finish_reason is not None
    item = OutputItem(
        choice=choice.index,
        text=choice.unsent_text,
        reasoning=choice.unsent_reasoning,
        tool_calls=choice.stream.calls or None if choice.finish_reason else None,
        tokens=choice.unsent_tokens,
        logprobs=choice.unsent_logprobs or None,
        finish_reason=choice.finish_reason,
        stop_sequence=choice.stream.stops.matched,
    )
    choice.unsent_text = choice.unsent_reasoning = ""
    choice.unsent_tokens = 0
    choice.unsent_logprobs = []
    return item


def usage_of(request: Request) -> Usage:
    """The prompt counts once, however many choices there are."""
    completion = sum(choice.tokens for choice in request.choices)
    return Usage(
        prompt_tokens=len(request.prompt),
        completion_tokens=completion,
        total_tokens=len(request.prompt) + completion,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=request.cached),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=sum(choice.reasoning_tokens for choice in request.choices)
        ),
    )


def stats_of(request: Request, peak_bytes: int, *, serving_batches: bool) -> GenerationStats:
    """Speeds as a client sees them: prompt until the first token, then the tokens after it."""
    completion = sum(choice.tokens for choice in request.choices)
    prompt_s = request.first_token_at - request.admitted_at
    answer_s = request.last_token_at - request.first_token_at
    computed = len(request.prompt) - request.cached
    later = completion - len(request.choices)
    return GenerationStats(
        prompt_tps=_rate(computed, prompt_s),
        generation_tps=_rate(later, answer_s) if later > 0 else _rate(completion, prompt_s),
        prompt_tokens=len(request.prompt),
        generation_tokens=completion,
        peak_memory_usage=Memory.of(peak_bytes),
        serving_batches=serving_batches,
        in_flight_at_admission=request.in_flight_at_admission,
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
