"""Bodies of Messages answers: events of a streamed one, and the complete one. Pure."""

from __future__ import annotations

import json
from typing import Any

from skulkd.api.anthropic.errors import error_body
from skulkd.api.errors import ApiError
from skulkd.api.generation import Item
from skulkd.api.sse import event, to_json
from skulkd.requests.answer import GeneratedAnswer
from skulkd.runner.protocol import Output, OutputItem, PrefillProgress
from skulkd.wire.anthropic import (
    AnswerBlock,
    MessagesResponse,
    MessageTextBlock,
    MessageThinkingBlock,
    MessageToolUseBlock,
    MessageUsage,
    StopReason,
)
from skulkd.wire.chat import FinishReason, ToolCallItem, Usage
from skulkd.worker.task_stream import TaskEnded

PING = event("ping", '{"type":"ping"}')
_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


def message_id(command_id: str) -> str:
    return f"msg_{command_id}"


def messages_response(answer: GeneratedAnswer, command_id: str, model: str) -> MessagesResponse:
    """The body of a complete answer; a cancelled one has no stop reason."""
    [choice] = answer.choices
    content: list[AnswerBlock] = []
    if thinking := "".join(choice.reasoning):
        content.append(MessageThinkingBlock(thinking=thinking))
    if choice.text:
        content.append(MessageTextBlock(text=choice.text))
    content += [_tool_use(call) for call in choice.tool_calls]
    return MessagesResponse(
        id=message_id(command_id),
        model=model,
        content=content,
        stop_reason=stop_reason(choice.finish_reason, choice.stop_sequence),
        stop_sequence=choice.stop_sequence,
        usage=usage_of(answer.usage),
    )


def stop_reason(finish: FinishReason | None, stop_sequence: str | None) -> StopReason | None:
    if finish == "stop" and stop_sequence is not None:
        return "stop_sequence"
    reasons: dict[FinishReason | None, StopReason] = {
        "stop": "end_turn",
        "length": "max_tokens",
        "tool_calls": "tool_use",
        "content_filter": "refusal",
    }
    return reasons.get(finish)


def usage_of(usage: Usage | None) -> MessageUsage:
    if usage is None:
        return MessageUsage(input_tokens=0, output_tokens=0)
    cached = usage.prompt_tokens_details.cached_tokens
    return MessageUsage(
        input_tokens=usage.prompt_tokens - cached,
        cache_read_input_tokens=cached,
        output_tokens=usage.completion_tokens,
    )


def tool_use_id(call_id: str) -> str:
    return call_id if call_id.startswith("toolu_") else f"toolu_{call_id}"


def _tool_use(call: ToolCallItem) -> MessageToolUseBlock:
    return MessageToolUseBlock(id=tool_use_id(call.id), name=call.name, input=_input(call))


def _input(call: ToolCallItem) -> dict[str, Any]:
    """Arguments as an object; a model that wrote anything else is shown as it is."""
    try:
        value = json.loads(call.arguments)
    except ValueError:
        value = call.arguments
    return value if isinstance(value, dict) else {"arguments": value}


class MessageFrames:
    """`Frames` of one answer: blocks in order, one open at a time."""

    def __init__(self, command_id: str, model: str) -> None:
        self._command_id = command_id
        self._model = model
        self._block: str | None = None
        self._index = -1
        self._finish: FinishReason | None = None
        self._stop_sequence: str | None = None

    def opening(self, first: Item | None) -> str:
        prompt_tokens = first.total if isinstance(first, PrefillProgress) else 0
        message = MessagesResponse(
            id=message_id(self._command_id),
            model=self._model,
            content=[],
            usage=MessageUsage(input_tokens=prompt_tokens, output_tokens=0),
        )
        body = f'{{"type":"message_start","message":{message.model_dump_json()}}}'
        return event("message_start", body) + PING

    def progress(self, _progress: PrefillProgress) -> str:
        return ""

    def output(self, output: Output) -> str:
        return "".join(self._item(item) for item in output.items)

    def end(self, ended: TaskEnded) -> str:
        if ended.status != "Complete":
            return ""
        delta = {
            "stop_reason": stop_reason(self._finish, self._stop_sequence),
            "stop_sequence": self._stop_sequence,
        }
        usage = usage_of(ended.usage).model_dump()
        body = {"type": "message_delta", "delta": delta, "usage": usage}
        stop = event("message_stop", '{"type":"message_stop"}')
        return self._close() + event("message_delta", to_json(body)) + stop

    def error(self, error: ApiError) -> str:
        return event("error", error_body(error).model_dump_json(exclude={"request_id"}))

    def _item(self, item: OutputItem) -> str:
        self._finish = item.finish_reason or self._finish
        self._stop_sequence = item.stop_sequence or self._stop_sequence
        text = ""
        if item.reasoning:
            text += self._open("thinking")
            text += self._delta("thinking_delta", "thinking", item.reasoning)
        if item.text:
            text += self._open("text") + self._delta("text_delta", "text", item.text)
        return text + "".join(self._call(call) for call in item.tool_calls or ())

    def _open(self, kind: str) -> str:
        if self._block == kind:
            return ""
        return self._close() + self._start(kind, _EMPTY[kind])

    def _start(self, kind: str, block: dict[str, Any]) -> str:
        self._block = kind
        self._index += 1
        body = {"type": "content_block_start", "index": self._index, "content_block": block}
        return event("content_block_start", to_json(body))

    def _delta(self, kind: str, key: str, value: str) -> str:
        return event(
            "content_block_delta",
            f'{{"type":"content_block_delta","index":{self._index},'
            f'"delta":{{"type":"{kind}","{key}":{to_json(value)}}}}}',
        )

    def _close(self) -> str:
        if self._block is None:
            return ""
        signed = self._delta("signature_delta", "signature", "")
        before = signed if self._block == "thinking" else ""
        self._block = None
        body = f'{{"type":"content_block_stop","index":{self._index}}}'
        return before + event("content_block_stop", body)

    def _call(self, call: ToolCallItem) -> str:
        block = {"type": "tool_use", "id": tool_use_id(call.id), "name": call.name, "input": {}}
        start = self._close() + self._start("tool_use", block)
        arguments = self._delta("input_json_delta", "partial_json", to_json(_input(call)))
        return start + arguments + self._close()
