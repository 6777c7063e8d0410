"""Calls of tools that a model asks for, in the shapes of OpenAI and Ollama. Pure.

The tools belong to whoever sent the job; nothing here or elsewhere on the node runs them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is JSON text."""

    id: str
    name: str
    arguments: str


def tool_calls_choice(content: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """The choice of a whole answer."""
    return {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": content or None,
            "tool_calls": [_openai(call) for call in calls],
        },
        "finish_reason": "tool_calls",
    }


def tool_calls_chunk(
    request_id: str, model: object, calls: Sequence[ToolCall], created: int
) -> dict[str, Any]:
    """One piece of a streamed answer."""
    deltas = [{"index": index, **_openai(call)} for index, call in enumerate(calls)]
    return {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "delta": {"tool_calls": deltas}, "finish_reason": None}],
    }


def _openai(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def ollama_message(content: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """The message of an answer of `/api/chat`."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"function": {"name": call.name, "arguments": _parsed(call.arguments)}}
            for call in calls
        ]
    return message


def _parsed(arguments: str) -> Any:
    """Ollama gives an object; a model may have written anything."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def ollama_tool_calls(found: object, request_id: str) -> list[ToolCall]:
    """From the message of an answer of `/api/chat`, which has no ids."""
    calls: list[ToolCall] = []
    for entry in found if isinstance(found, list) else ():
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            calls.append(ToolCall(f"call_{request_id}_{len(calls)}", function["name"], text))
    return calls
