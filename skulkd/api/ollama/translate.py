"""From Ollama's requests to chat requests. Pure; knows no HTTP."""

from __future__ import annotations

import json
from typing import Any

from skulkd.requests.errors import RequestError
from skulkd.wire.chat import (
    ChatCompletionMessage,
    ChatCompletionRequest,
    ToolCall,
    ToolCallItem,
)
from skulkd.wire.durations import keep_alive_s
from skulkd.wire.ollama import (
    OllamaChatMessage,
    OllamaChatRequest,
    OllamaGenerateRequest,
    OllamaRequest,
    OllamaRequestOptions,
)

_DEFAULT_TAG = ":latest"
FIELD_NAMES = {
    "max_tokens": "num_predict",
    "repetition_penalty": "repeat_penalty",
    "repetition_context_size": "repeat_last_n",
    "response_format": "format",
}


def model_id(name: str) -> str:
    """Clients add the default tag to names without one."""
    return name.removesuffix(_DEFAULT_TAG)


def keep_alive(given: str | float | None) -> float | None:
    """Seconds that the model stays loaded; None: nothing was asked for. Raises RequestError."""
    if given is None:
        return None
    try:
        return keep_alive_s(given)
    except ValueError as error:
        text = f"keep_alive {error}, not {str(given)[:100]!r}"
        raise RequestError("invalid_request", text) from None


def chat_request(body: OllamaChatRequest) -> ChatCompletionRequest:
    """Raises RequestError for what no model here can do."""
    messages: list[ChatCompletionMessage] = []
    open_calls: list[ToolCall] = []
    for message in body.messages:
        _refuse_images(message.images)
        translated = _message(message, open_calls, len(messages))
        open_calls = list(translated.tool_calls or open_calls)
        messages.append(translated)
    return _request(body, messages, tools=body.tools or None)


def generate_request(body: OllamaGenerateRequest) -> ChatCompletionRequest:
    """Raises RequestError for what no model here can do."""
    _refuse_images(body.images)
    for name in ("suffix", "template", "context"):
        if getattr(body, name):
            raise RequestError("invalid_request", f"{name} is not supported here")
    messages = [ChatCompletionMessage(role="user", content=body.prompt)]
    if body.system:
        messages.insert(0, ChatCompletionMessage(role="system", content=body.system))
    return _request(body, messages)


def _request(
    body: OllamaRequest,
    messages: list[ChatCompletionMessage],
    tools: list[dict[str, Any]] | None = None,
) -> ChatCompletionRequest:
    options = body.options or OllamaRequestOptions()
    limit = options.num_predict
    return ChatCompletionRequest(
        model=model_id(body.model),
        messages=messages,
        tools=tools,
        stream=body.stream,
        response_format=_response_format(body.format),
        max_tokens=None if limit is None or limit < 0 else limit,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        min_p=options.min_p,
        seed=options.seed,
        stop=options.stop,
        repetition_penalty=options.repeat_penalty,
        repetition_context_size=_window(options.repeat_last_n),
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        enable_thinking=None if body.think is None else body.think is not False,
        reasoning_effort=body.think if isinstance(body.think, str) else None,
    )


def _window(tokens: int | None) -> int | None:
    """-1 means the whole context there."""
    return None if tokens is None or tokens < 0 else tokens


def _response_format(wanted: str | dict[str, Any] | None) -> dict[str, Any] | None:
    if not wanted:
        return None
    if isinstance(wanted, str):
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted}}


def _message(
    message: OllamaChatMessage, open_calls: list[ToolCall], at: int
) -> ChatCompletionMessage:
    calls = [
        ToolCall(
            id=f"call_{at}_{index}",
            function=ToolCallItem(
                id=f"call_{at}_{index}",
                name=call.function.name,
                arguments=json.dumps(call.function.arguments, ensure_ascii=False),
            ),
        )
        for index, call in enumerate(message.tool_calls or ())
    ]
    return ChatCompletionMessage(
        role=message.role,
        content=message.content,
        reasoning_content=message.thinking,
        tool_calls=calls or None,
        tool_call_id=_answered(message, open_calls) if message.role == "tool" else None,
        name=message.tool_name,
    )


def _answered(message: OllamaChatMessage, open_calls: list[ToolCall]) -> str | None:
    """Ollama has no ids of calls: a result belongs to the call of its name, else to the next."""
    named = [call for call in open_calls if call.function.name == message.tool_name]
    found = (named or open_calls)[:1]
    for call in found:
        open_calls.remove(call)
    return found[0].id if found else None


def _refuse_images(images: list[str] | None) -> None:
    if images:
        text = "images cannot be used here: this node answers text only"
        raise RequestError("invalid_request", text)
