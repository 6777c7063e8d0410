"""From tokens to output items: decode, split, hold back, finish. One choice at a time."""

from typing import Any

from skulkd.runner.logprobs import TokenDescriber
from skulkd.runner.phases import PhaseRecorder
from skulkd.runner.protocol import OutputItem
from skulkd.runner.request import Choice, Request
from skulkd.runner.rows import Drawn
from skulkd.wire.chat import FinishReason


class AnswerWriter:
    """Keeps nothing itself: the state of an answer is in its choice."""

    def __init__(self, tokenizer: Any, recorder: PhaseRecorder) -> None:
        self._describer = TokenDescriber(tokenizer)
        self._stop_tokens = frozenset(int(token) for token in tokenizer.eos_token_ids)
        self._recorder = recorder

    def token(self, request: Request, choice: Choice, drawn: Drawn) -> None:
        """Add a token to what the client will get. Sets `finish_reason` at the end."""
        token = drawn.token
        choice.tokens += 1
        choice.unsent_tokens += 1
        stream = choice.stream
        if stream.in_reasoning:
            choice.reasoning_tokens += 1
        if token is None or token in self._stop_tokens:
            # The token that ends the answer is no text.
            self._finish(request, choice, "stop")
            return
        if drawn.likely is not None:
            choice.held_logprobs.append(self._describer.describe(token, drawn.likely))
        choice.detokenizer.add_token(token)
        delta = stream.push(choice.detokenizer.last_segment)
        choice.unsent_text += delta.content
        choice.unsent_reasoning += delta.reasoning
        if delta.content or delta.reasoning:
            _release_logprobs(choice)
        if stream.ended:
            # Tokens that only made up the stop string are not part of the answer.
            choice.held_logprobs.clear()
            self._finish(request, choice, "stop")
        elif choice.tokens >= request.max_tokens:
            self._finish(request, choice, "length")

    def item(self, choice: Choice) -> OutputItem | None:
        """What the client has not got yet, if that is anything to see."""
        if not (choice.unsent_text or choice.unsent_reasoning or choice.finish_reason):
            return None
        if choice.told_end:
            return None
        choice.told_end = choice.finish_reason is not None
        item = OutputItem(
            choice=choice.index,
            text=choice.unsent_text,
            reasoning=choice.unsent_reasoning,
            tool_calls=choice.stream.calls or None if choice.finish_reason else None,
            tokens=choice.unsent_tokens,
            logprobs=choice.unsent_logprobs or None,
            finish_reason=choice.finish_reason,
        )
        choice.unsent_text = choice.unsent_reasoning = ""
        choice.unsent_tokens = 0
        choice.unsent_logprobs = []
        return item

    def _finish(self, request: Request, choice: Choice, reason: FinishReason) -> None:
        stream = choice.stream
        _release_logprobs(choice)
        if not stream.stops.stopped:
            choice.detokenizer.finalize()
            rest = stream.push(choice.detokenizer.last_segment)
            choice.unsent_text += rest.content
            choice.unsent_reasoning += rest.reasoning
        if stream.tools is None:
            last = stream.finish()
        else:
            with self._recorder.inside("parser", "apply_all_parsers", owner=request.owner):
                last = stream.finish()
        choice.unsent_text += last.content
        choice.unsent_reasoning += last.reasoning
        choice.finish_reason = "tool_calls" if stream.calls and reason == "stop" else reason


def _release_logprobs(choice: Choice) -> None:
    """The text of these tokens is decided: they belong to the answer."""
    if choice.held_logprobs:
        choice.unsent_logprobs += choice.held_logprobs
        choice.held_logprobs.clear()
