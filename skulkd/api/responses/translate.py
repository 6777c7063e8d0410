"""From a Responses request to a chat request. Pure; knows no HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from skulkd.requests.errors import RequestError
from skulkd.wire.chat import (
    ChatCompletionMessage,
    ChatCompletionRequest,
    ToolCall,
    ToolCallItem,
)
from skulkd.wire.responses import (
    FunctionCallInput,
    FunctionCallOutput,
    FunctionOutputInput,
    InputItem,
    MessageInput,
    MessageOutput,
    OutputEntry,
    ReasoningInput,
    ResponseCreateParams,
    ResponseMediaPart,
    ResponsePart,
    ResponseTextPart,
    TextFormat,
)

FIELD_NAMES = {"max_tokens": "max_output_tokens", "response_format": "text.format"}


def chat_request(
    body: ResponseCreateParams, messages: Sequence[ChatCompletionMessage]
) -> ChatCompletionRequest:
    """`messages` are the conversation. Raises RequestError for what no model here can do."""
    if body.background:
        raise RequestError("invalid_request", "background: not supported here")
    system = [ChatCompletionMessage(role="system", content=text) for text in (body.instructions,)]
    return ChatCompletionRequest(
        model=body.model,
        messages=[*(system if body.instructions else ()), *messages],
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=body.stop,
        seed=body.seed,
        stream=body.stream,
        tools=[_tool(tool, at) for at, tool in enumerate(body.tools or ())] or None,
        tool_choice=_tool_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        response_format=None if body.text is None else _response_format(body.text.format),
        reasoning_effort=None if body.reasoning is None else body.reasoning.effort,
        enable_thinking=body.enable_thinking,
    )


def input_messages(given: str | Sequence[InputItem]) -> list[ChatCompletionMessage]:
    """Items as messages; calls and reasoning join the assistant's message. Raises RequestError."""
    if isinstance(given, str):
        return [ChatCompletionMessage(role="user", content=given)]
    messages: list[ChatCompletionMessage] = []
    for item in given:
        match item:
            case MessageInput():
                _add(messages, ChatCompletionMessage(role=item.role, content=_text(item.content)))
            case ReasoningInput():
                parts = item.content or item.summary
                text = "\n".join(part.text for part in parts)
                _add(messages, ChatCompletionMessage(role="assistant", reasoning_content=text))
            case FunctionCallInput():
                call = _call(item.call_id, item.name, item.arguments)
                _add(messages, ChatCompletionMessage(role="assistant", tool_calls=[call]))
            case FunctionOutputInput():
                messages.append(
                    ChatCompletionMessage(
                        role="tool", content=_text(item.output), tool_call_id=item.call_id
                    )
                )
    return messages


def output_messages(output: Iterable[OutputEntry]) -> list[ChatCompletionMessage]:
    """An answer as the message that the next turn sees; its reasoning is not repeated."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    for entry in output:
        if isinstance(entry, MessageOutput):
            texts += [part.text for part in entry.content]
        elif isinstance(entry, FunctionCallOutput):
            calls.append(_call(entry.call_id, entry.name, entry.arguments))
    content = "".join(texts) if texts or not calls else None
    return [ChatCompletionMessage(role="assistant", content=content, tool_calls=calls or None)]


def _add(messages: list[ChatCompletionMessage], message: ChatCompletionMessage) -> None:
    """One message of the assistant may come in several items."""
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or message.role != "assistant":
        messages.append(message)
        return
    if last.content is not None and message.content is not None:
        messages.append(message)
        return
    messages[-1] = last.model_copy(
        update={
            "content": last.content if message.content is None else message.content,
            "reasoning_content": message.reasoning_content or last.reasoning_content,
            "tool_calls": [*(last.tool_calls or ()), *(message.tool_calls or ())] or None,
        }
    )


def _call(call_id: str, name: str, arguments: str) -> ToolCall:
    return ToolCall(id=call_id, function=ToolCallItem(id=call_id, name=name, arguments=arguments))


def _text(content: str | Sequence[ResponsePart]) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if isinstance(part, ResponseMediaPart):
            text = f"{part.type} cannot be used here: this node answers text only"
            raise RequestError("invalid_request", text)
        texts.append(part.text if isinstance(part, ResponseTextPart) else part.refusal)
    return "\n".join(texts)


def _tool(tool: dict[str, Any], at: int) -> dict[str, Any]:
    if tool.get("type") != "function" or not isinstance(tool.get("name"), str):
        text = f"tools.{at}: only tools of type function, with a name, can be used here"
        raise RequestError("invalid_request", text)
    keys = ("name", "description", "parameters", "strict")
    return {
        "type": "function",
        "function": {key: tool[key] for key in keys if tool.get(key) is not None},
    }


def _tool_choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "function" and "name" in choice:
        return {"type": "function", "function": {"name": choice["name"]}}
    text = "tool_choice: only auto, none, required or a function can be chosen here"
    raise RequestError("invalid_request", text)


def _response_format(wanted: TextFormat) -> dict[str, Any] | None:
    if wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "json_object"}
    if wanted.schema_ is None:
        raise RequestError("invalid_request", "text.format.schema: required for json_schema")
    schema = {"name": wanted.name or "answer", "schema": wanted.schema_}
    return {"type": "json_schema", "json_schema": schema}
