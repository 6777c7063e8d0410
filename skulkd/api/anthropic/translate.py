"""From a Messages request to a chat request. Pure; knows no HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from skulkd.requests.errors import RequestError
from skulkd.wire.anthropic import (
    CountTokensRequest,
    MediaBlock,
    MessageParam,
    MessagesRequest,
    MessageTextBlock,
    MessageThinkingBlock,
    MessageTool,
    MessageToolResultBlock,
    MessageToolUseBlock,
)
from skulkd.wire.chat import (
    ChatCompletionMessage,
    ChatCompletionRequest,
    ToolCall,
    ToolCallItem,
)

# Claude Code puts these into the system text; they are for Anthropic's servers.
_BILLING_LINE = "x-anthropic-"
FIELD_NAMES = {"response_format": "output_config.format"}


def chat_request(body: MessagesRequest) -> ChatCompletionRequest:
    """Raises RequestError for what no model here can do."""
    return counted_request(body).model_copy(
        update={
            "max_tokens": body.max_tokens,
            "stop": body.stop_sequences,
            "stream": body.stream,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "top_k": body.top_k,
        }
    )


def counted_request(body: CountTokensRequest) -> ChatCompletionRequest:
    """The part of a request that makes up its prompt. Raises RequestError."""
    choice = body.tool_choice
    forced = choice is not None and choice.type == "tool"
    config = body.output_config
    return ChatCompletionRequest(
        model=body.model,
        messages=[*_system(body.system), *_messages(body.messages)],
        tools=[_tool(tool, at) for at, tool in enumerate(body.tools or ())] or None,
        tool_choice=_tool_choice(body, forced=forced),
        parallel_tool_calls=(
            False if choice is not None and choice.disable_parallel_tool_use else None
        ),
        enable_thinking=None if body.thinking is None else body.thinking.type != "disabled",
        response_format=(
            None
            if config is None or config.format is None
            else {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": config.format.schema_},
            }
        ),
    )


def _system(system: str | Sequence[MessageTextBlock] | None) -> list[ChatCompletionMessage]:
    if system is None:
        return []
    texts = [system] if isinstance(system, str) else [block.text for block in system]
    lines = [line for text in texts for line in text.split("\n")]
    text = "\n".join(line for line in lines if not line.startswith(_BILLING_LINE))
    return [ChatCompletionMessage(role="system", content=text)] if text else []


def _messages(messages: Iterable[MessageParam]) -> list[ChatCompletionMessage]:
    return [translated for message in messages for translated in _message(message)]


def _message(message: MessageParam) -> list[ChatCompletionMessage]:
    """Results of tools are messages of their own in a chat, before what the user says."""
    if isinstance(message.content, str):
        return [ChatCompletionMessage(role=message.role, content=message.content)]
    texts: list[str] = []
    thinking: list[str] = []
    calls: list[ToolCall] = []
    results: list[ChatCompletionMessage] = []
    for block in message.content:
        match block:
            case MessageTextBlock():
                texts.append(block.text)
            case MessageThinkingBlock():
                thinking.append(block.thinking)
            case MessageToolUseBlock():
                calls.append(_call(block))
            case MessageToolResultBlock():
                results.append(_result(block))
            case MediaBlock():
                raise _media_refused(block)
    if not (texts or thinking or calls):
        return results
    own = ChatCompletionMessage(
        role=message.role,
        content="\n".join(texts) if texts or not calls else None,
        reasoning_content="\n".join(thinking) or None,
        tool_calls=calls or None,
    )
    return [*results, own]


def _call(block: MessageToolUseBlock) -> ToolCall:
    arguments = json.dumps(block.input, ensure_ascii=False)
    item = ToolCallItem(id=block.id, name=block.name, arguments=arguments)
    return ToolCall(id=block.id, function=item)


def _result(block: MessageToolResultBlock) -> ChatCompletionMessage:
    content = block.content
    if not isinstance(content, str):
        texts = []
        for part in content:
            if isinstance(part, MediaBlock):
                raise _media_refused(part)
            texts.append(part.text)
        content = "\n".join(texts)
    if block.is_error:
        content = f"Error: {content}"
    return ChatCompletionMessage(role="tool", content=content, tool_call_id=block.tool_use_id)


def _media_refused(block: MediaBlock) -> RequestError:
    text = f"content of type {block.type} cannot be used here: this node answers text only"
    return RequestError("invalid_request", text)


def _tool(tool: MessageTool, at: int) -> dict[str, Any]:
    if tool.input_schema is None:
        kind = tool.type or "without input_schema"
        text = f"tools.{at}: {kind} is a tool that this server cannot run"
        raise RequestError("invalid_request", text)
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _tool_choice(body: CountTokensRequest, *, forced: bool) -> str | dict[str, Any] | None:
    choice = body.tool_choice
    if choice is None:
        return None
    if forced:
        if not choice.name:
            raise RequestError("invalid_request", "tool_choice.name: required for type tool")
        return {"type": "function", "function": {"name": choice.name}}
    return {"auto": "auto", "any": "required", "none": "none"}[choice.type]
