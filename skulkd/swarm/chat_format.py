"""Chat requests and responses of jobs, in the shapes of OpenAI and of Ollama. Pure.

The tools of a job belong to its sender; nothing on this node runs them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skulkd.swarm.js_values import is_number, mapping_of, optional_text, trim

# What tells a bare JSON schema from OpenAI's wrapper, which has name, schema and strict.
_SCHEMA_KEYS = frozenset(
    [
        "type",
        "properties",
        "items",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "required",
    ]
)


@dataclass(frozen=True, slots=True)
class JobToolCall:
    """A call of a tool that a model asks for. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model generated; tokens are None where they were not counted."""

    content: str
    prompt_tokens: int | None = None
    tokens: int | None = None
    tool_calls: Sequence[JobToolCall] = ()


def messages_to_prompt(messages: object) -> str:
    """The text of all messages, to see whether there is any."""
    entries = messages if isinstance(messages, list | tuple) else ()
    lines = []
    for message in entries:
        if isinstance(message, Mapping) and (text := trim(content_text(message.get("content")))):
            lines.append(f"{optional_text(message.get('role')) or 'user'}: {text}")
    return "\n\n".join(lines)


def content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = [
        part.get("text") or ""
        for part in parts
        if isinstance(part, Mapping) and part.get("type") == "text"
    ]
    return "\n".join(text for text in texts if isinstance(text, str))


def ollama_format(response_format: object) -> Any:
    """`format` of Ollama's API for an OpenAI response format; None when it has none."""
    if not isinstance(response_format, Mapping):
        return None
    kind = response_format.get("type")
    if kind == "json_object":
        return "json"
    if kind != "json_schema":
        return None
    return response_schema(response_format) or "json"


def response_schema(response_format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of a response format of type json_schema, wrapped as OpenAI does it or not."""
    named = response_format.get("json_schema")
    if isinstance(named, Mapping):
        if isinstance(named.get("schema"), Mapping):
            return named["schema"] or None
        if any(key in named for key in _SCHEMA_KEYS):
            return named
    schema = response_format.get("schema")
    return schema or None if isinstance(schema, Mapping) else None


def ollama_request(job: Mapping[str, Any]) -> dict[str, Any]:
    """The body of `/api/chat` for a job of provider ollama; unset parameters are left out."""
    request = job["openai_request"]
    body: dict[str, Any] = {
        "model": job.get("model") or request.get("model"),
        "messages": request.get("messages"),
        "stream": False,
    }
    if (shape := ollama_format(request.get("response_format"))) is not None:
        body["format"] = shape
    if request.get("tools"):
        body["tools"] = request["tools"]
    names = {
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "num_predict",
        "stop": "stop",
    }
    options = {theirs: request[ours] for ours, theirs in names.items() if ours in request}
    if options:
        body["options"] = options
    return body


def token_count(value: object) -> int | None:
    if not isinstance(value, int | float) or not is_number(value) or value < 0:
        return None
    return math.floor(value)


def chat_completion(
    request_id: str,
    model: object,
    completion: Completion,
    created: int,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`openai_response` of a result."""
    prompt, generated = token_count(completion.prompt_tokens), token_count(completion.tokens)
    total = None if prompt is None or generated is None else prompt + generated
    message: dict[str, Any] = {"role": "assistant", "content": completion.content}
    if completion.tool_calls:
        message["content"] = completion.content or None
        message["tool_calls"] = [_openai_call(call) for call in completion.tool_calls]
    reason = "tool_calls" if completion.tool_calls else "stop"
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": total,
            "cost_cents": 0,
        },
    }
    if metadata is not None:
        answer["metadata"] = dict(metadata)
    return answer


def chat_chunk(
    request_id: str,
    model: object,
    created: int,
    delta: Mapping[str, Any],
    finish_reason: str | None = None,
) -> dict[str, Any]:
    """One chunk of a streamed answer."""
    return {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish_reason}],
    }


def tool_calls_delta(calls: Sequence[JobToolCall]) -> dict[str, Any]:
    return {
        "tool_calls": [{"index": index, **_openai_call(call)} for index, call in enumerate(calls)]
    }


def _openai_call(call: JobToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def ollama_message(content: str, calls: Sequence[JobToolCall]) -> dict[str, Any]:
    """The message of a response of `/api/chat`."""
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


def ollama_tool_calls(found: object, request_id: str) -> list[JobToolCall]:
    """From the message of a response of `/api/chat`, which has no ids."""
    calls: list[JobToolCall] = []
    for entry in found if isinstance(found, list) else ():
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            calls.append(JobToolCall(f"call_{request_id}_{len(calls)}", function["name"], text))
    return calls


def ollama_completion(raw: Mapping[str, Any], request_id: str) -> Completion:
    """From a response of Ollama's `/api/chat`."""
    message = mapping_of(raw.get("message"))
    content = message.get("content")
    return Completion(
        content if isinstance(content, str) else "",
        raw.get("prompt_eval_count"),
        raw.get("eval_count"),
        ollama_tool_calls(message.get("tool_calls"), request_id),
    )
