"""Bodies of Ollama's answers: lines of a streamed one, and the complete one."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, Literal

from skulkd.api.errors import ApiError
from skulkd.api.generation import Item
from skulkd.api.ollama.errors import error_line
from skulkd.api.sse import to_json
from skulkd.requests.answer import GeneratedAnswer
from skulkd.requests.open_request import OpenRequest
from skulkd.runner.protocol import Output, OutputItem, PrefillProgress
from skulkd.wire.base import format_zulu
from skulkd.wire.chat import FinishReason, GenerationStats, ToolCallItem, Usage
from skulkd.wire.ollama import (
    OllamaCall,
    OllamaChatMessage,
    OllamaChatResponse,
    OllamaFigures,
    OllamaGenerateResponse,
    OllamaMessageCall,
)
from skulkd.worker.task_stream import TaskEnded

_NS = 1_000_000_000


class OllamaFrames:
    """`Frames` of one answer; `chat` says which of the two bodies it has."""

    def __init__(self, opened: OpenRequest, model: str, *, chat: bool) -> None:
        self._opened = opened
        self._model = model
        self._chat = chat
        self._finish: FinishReason | None = None
        self._head = f'{{"model":{to_json(model)},"created_at":"'
        self._text = '","message":{"role":"assistant","content":' if chat else '","response":'
        self._tail = '},"done":false}\n' if chat else ',"done":false}\n'

    def opening(self, _first: Item | None) -> str:
        return ""

    def progress(self, _progress: PrefillProgress) -> str:
        return ""

    def output(self, output: Output) -> str:
        return "".join(self._item(item) for item in output.items)

    def end(self, ended: TaskEnded) -> str:
        if ended.status != "Complete":
            return ""
        figures = figures_of(self._opened, self._finish, ended.usage, ended.stats)
        return self._line("", "", (), figures)

    def error(self, error: ApiError) -> str:
        return error_line(error)

    def whole(self, answer: GeneratedAnswer) -> str:
        [choice] = answer.choices
        figures = figures_of(self._opened, choice.finish_reason, answer.usage, answer.stats)
        thinking = "".join(choice.reasoning)
        return self._line(choice.text, thinking, tuple(choice.tool_calls), figures)

    def without_answer(self, reason: Literal["load", "unload"]) -> str:
        """The answer to a request without a prompt."""
        figures = figures_of(self._opened, None, None, None)
        return self._line("", "", (), figures.model_copy(update={"done_reason": reason}))

    def _item(self, item: OutputItem) -> str:
        self._finish = item.finish_reason or self._finish
        calls = tuple(item.tool_calls or ())
        if not (item.text or item.reasoning or calls):
            return ""
        if item.reasoning or calls:
            return self._line(item.text, item.reasoning, calls, None)
        # Written by hand: there is one for every token.
        now = format_zulu(datetime.now(UTC))
        return f"{self._head}{now}{self._text}{to_json(item.text)}{self._tail}"

    def _line(
        self,
        text: str,
        thinking: str,
        calls: tuple[ToolCallItem, ...],
        figures: OllamaFigures | None,
    ) -> str:
        facts: dict[str, Any] = {
            "model": self._model,
            "created_at": datetime.now(UTC),
            "done": figures is not None,
            **({} if figures is None else dict(figures)),
        }
        if self._chat:
            message = OllamaChatMessage(
                role="assistant",
                content=text,
                thinking=thinking or None,
                tool_calls=[_call(call) for call in calls] or None,
            )
            return OllamaChatResponse(message=message, **facts).model_dump_json() + "\n"
        body = OllamaGenerateResponse(response=text, thinking=thinking or None, **facts)
        return body.model_dump_json() + "\n"


def figures_of(
    opened: OpenRequest,
    finish: FinishReason | None,
    usage: Usage | None,
    stats: GenerationStats | None,
) -> OllamaFigures:
    """What was measured; the wait for a model to be ready is the load."""
    now = time.monotonic()
    accepted = now if opened.accepted_at is None else opened.accepted_at
    total = int((now - opened.opened_at) * _NS)
    load = int((accepted - opened.opened_at) * _NS)
    prompt, answer = _durations(usage, stats)
    return OllamaFigures(
        done_reason="length" if finish == "length" else "stop",
        total_duration=total,
        # The runner may have begun before its node knew that it had accepted the request.
        load_duration=max(0, min(load, total - (prompt or 0) - (answer or 0))),
        prompt_eval_count=None if usage is None else usage.prompt_tokens,
        prompt_eval_duration=prompt,
        eval_count=None if usage is None else usage.completion_tokens,
        eval_duration=answer,
    )


def _durations(usage: Usage | None, stats: GenerationStats | None) -> tuple[int | None, int | None]:
    """Until the first token, and from there to the last; rates are of what was computed then."""
    if usage is None or stats is None:
        return None, None
    computed = usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens
    return _duration(computed, stats.prompt_tps), _duration(
        usage.completion_tokens - 1, stats.generation_tps
    )


def _duration(tokens: int, per_second: float) -> int:
    """Clients divide by it, so it is never 0."""
    return max(1, int(tokens / per_second * _NS)) if per_second > 0 else 1


def _call(call: ToolCallItem) -> OllamaMessageCall:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = {"arguments": call.arguments}
    if not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
    return OllamaMessageCall(function=OllamaCall(name=call.name, arguments=arguments))
