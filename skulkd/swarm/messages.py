"""Chat in the shapes of the gateway: prompts, completions, chunks, redacted errors. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from skulkd.swarm.script_values import first_text, is_number, optional_text, trim

PRE_START_CODES = frozenset(
    {
        "selected_agent_unavailable",
        "selected_agent_unhealthy",
        "validation_failed",
        "docdex_context_missing",
        "docdex_api_key_missing",
    }
)
DOCDEX_CODES = frozenset(
    {
        "docdex_context_missing",
        "docdex_api_key_missing",
        "docdex_operation_not_allowed",
        "docdex_auth_failed",
        "docdex_repo_access_denied",
        "docdex_unavailable",
    }
)
REDACTED = "[redacted]"
_SHORTEST_SECRET = 4
# `key: value`, `key=value` and `"key":"value"`, the latter also inside of another JSON text,
# where its quotes are escaped. A quoted value ends with its quote.
_KEYED = re.compile(
    r"((?:x-api-key|authorization|api[_-]?key|token|secret)(?:\\*[\"'])?\s*[:=]\s*)"
    r"(?:(?P<quote>\\*[\"'])(?:(?!(?P=quote))(?:\\.|.))*(?P<end>(?P=quote))?"
    r"|(?:Bearer\s+)?[^\s,;}]+)",
    re.IGNORECASE | re.DOTALL,
)
_SERVICE_LINE = re.compile(
    r"^(\s*[\w.-]*(?:key|token|secret|password)[\w.-]*\s*(?:=>|[:=])\s*).*$",
    re.IGNORECASE | re.MULTILINE,
)
_FROM_TEXT = (
    (re.compile("timeout", re.IGNORECASE), "timeout"),
    (re.compile("not exposed|validation|required|empty", re.IGNORECASE), "validation_failed"),
    (re.compile("permission|policy|denied", re.IGNORECASE), "policy_denied"),
)

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

Message = Mapping[str, Any]


def redact(message: str, secrets: Iterable[str | None] = ()) -> str:
    """Known secrets, then whatever follows a word that announces one."""
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST_SECRET:
            message = message.replace(secret, REDACTED)
    return _KEYED.sub(_hidden, message)


def _hidden(match: re.Match[str]) -> str:
    return f"{match[1]}{match['quote'] or ''}{REDACTED}{match['end'] or ''}"


def redact_service_output(text: str) -> str:
    """Lines that set a secret, as service managers print their environment."""
    return _SERVICE_LINE.sub(rf"\g<1>{REDACTED}", text)


def code_from_message(message: str) -> str:
    """What kind of failure a redacted text tells of; the first word that fits decides."""
    return next((code for word, code in _FROM_TEXT if word.search(message)), "upstream_error")


def explicit_code(code: object) -> str | None:
    """A code that an error may carry itself."""
    known = isinstance(code, str) and code in PRE_START_CODES | DOCDEX_CODES
    return str(code) if known else None


def messages_to_prompt(messages: object) -> str:
    """All that is said, to see whether anything is."""
    entries = messages if isinstance(messages, list | tuple) else ()
    said = []
    for message in entries:
        if isinstance(message, Mapping) and (text := trim(content_text(message.get("content")))):
            said.append(f"{optional_text(message.get('role')) or 'user'}: {text}")
    return "\n\n".join(said)


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
    """The body of `/api/chat` for a job of provider ollama; only what was said is in it."""
    asked = job["openai_request"]
    body: dict[str, Any] = {
        "model": job.get("model") or asked.get("model"),
        "messages": asked.get("messages"),
        "stream": False,
    }
    if (shape := ollama_format(asked.get("response_format"))) is not None:
        body["format"] = shape
    if asked.get("tools"):
        body["tools"] = asked["tools"]
    names = {
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "num_predict",
        "stop": "stop",
    }
    options = {theirs: asked[ours] for ours, theirs in names.items() if ours in asked}
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
    content: str,
    tokens: tuple[object, object],
    created: int,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`openai_response` of a result. `tokens` are those of the prompt and of the answer."""
    prompt, completion = token_count(tokens[0]), token_count(tokens[1])
    total = None if prompt is None or completion is None else prompt + completion
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": total,
            "cost_cents": 0,
        },
    }
    if metadata is not None:
        answer["metadata"] = dict(metadata)
    return answer


def chunk(
    request_id: str, model: object, text: str | None, created: int, reason: str = "stop"
) -> dict[str, Any]:
    """One piece of a streamed answer; without text it is the last and tells the reason."""
    return {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
        "choices": [
            {
                "index": 0,
                "delta": {} if text is None else {"content": text},
                "finish_reason": reason if text is None else None,
            }
        ],
    }


def public_model(job: Mapping[str, Any]) -> str | None:
    """The name under which the gateway knows the model."""
    asked = job.get("openai_request")
    return first_text(job.get("model"), asked.get("model") if isinstance(asked, Mapping) else None)
