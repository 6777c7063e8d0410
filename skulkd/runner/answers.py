"""From tokens to output items: decode, split, hold back, finish. One choice at a time."""

from typing import Any

from skulkd.runner.logprobs import TokenDescriber
from skulkd.runner.phases import PhaseRecorder
from skulkd.runner.protocol import OutputItem
from skulkd.runner.request import Choice, Request
from skulkd.wire.chat import FinishReason


class AnswerWriter:
    """Keeps nothing itself: the state of an answer is in its choice."""

    def __init__(self, tokenizer: Any, recorder: PhaseRecorder) -> None:
        self._describer = TokenDescriber(tokenizer)
        self._recorder = recorder

    def token(self, request: Request, choice: Choice, response: Any) -> OutputItem | None:
        """What this token adds for the client, if anything yet. Sets `finish_reason` at the end."""
        choice.tokens += 1
        choice.unsent_tokens += 1
        stream = choice.stream
        if stream.in_reasoning:
            choice.reasoning_tokens += 1
        if response.finish_reason == "stop":
            # The token that ends the answer is no text.
            return self._finish(request, choice, "stop")
        if request.top_logprobs is not None:
            choice.unsent_logprobs.append(
                self._describer.describe(response.token, response.logprobs, request.top_logprobs)
            )
        choice.detokenizer.add_token(response.token)
        delta = stream.push(choice.detokenizer.last_segment)
        if stream.ended:
            # Tokens that only made up the stop string are not part of the answer.
            choice.unsent_logprobs = choice.unsent_logprobs if delta.content else []
            return self._finish(request, choice, "stop", delta.content, delta.reasoning)
        if response.finish_reason is not None:
            return self._finish(request, choice, "length", delta.content, delta.reasoning)
        if not (delta.content or delta.reasoning):
            return None
        return self._item(choice, delta.content, delta.reasoning)

    def _finish(
        self,
        request: Request,
        choice: Choice,
        reason: FinishReason,
        content: str = "",
        reasoning: str = "",
    ) -> OutputItem:
        stream = choice.stream
        if not stream.stops.stopped:
            choice.detokenizer.finalize()
            rest = stream.push(choice.detokenizer.last_segment)
            content, reasoning = content + rest.content, reasoning + rest.reasoning
        if stream.tools is None:
            last = stream.finish()
        else:
            with self._recorder.inside("parser", "apply_all_parsers", owner=request.owner):
                last = stream.finish()
        if stream.calls and reason == "stop":
            reason = "tool_calls"
        choice.finish_reason = reason
        return self._item(choice, content + last.content, reasoning + last.reasoning)

    def _item(self, choice: Choice, content: str, reasoning: str) -> OutputItem:
        item = OutputItem(
            choice=choice.index,
            text=content,
            reasoning=reasoning,
            tool_calls=choice.stream.calls or None if choice.finish_reason else None,
            tokens=choice.unsent_tokens,
            logprobs=choice.unsent_logprobs or None,
            finish_reason=choice.finish_reason,
        )
        choice.unsent_tokens = 0
        choice.unsent_logprobs = []
        return item
