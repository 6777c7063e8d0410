"""Answers of a gateway: parsed, bounded and checked before anything else uses them. Pure.

A gateway is another party. Whatever it sends that does not fit raises GatewayError here, which
the session treats like a call that failed: it waits and tries again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from skulkd.swarm.errors import GatewayError

MAX_DEPTH = 100
MAX_ID = 256
MAX_NAME = 512
MAX_TOKEN = 4096
MAX_MESSAGES = 4096
MAX_TOOLS = 512
REPLACEMENT = "\ufffd"

# The first character keeps "." and ".." out, which would change the path of a URL.
_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/@+=~-]{0,255}")
_HEADER_TOKEN = re.compile(r"[!-~]{1,4096}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NAMES = ("agent_slug", "source_agent_slug", "remote_slug", "provider", "adapter", "model")

Job = Mapping[str, Any]


def parse_answer(raw: bytes, status: int) -> dict[str, Any]:
    """The JSON object of a successful response; other JSON counts as an empty one.

    Raises GatewayError. Lone surrogates become U+FFFD, because they cannot be sent back.
    """
    try:
        found = json.loads(raw.decode("utf-8", "replace"), parse_constant=_no_constant)
        clean = _cleaned(found, 0)
    except RecursionError as error:
        message = f"the gateway's response is nested deeper than {MAX_DEPTH} levels"
        raise GatewayError(message, status) from error
    except ValueError as error:
        raise GatewayError("the gateway's response is not valid JSON", status) from error
    return clean if isinstance(clean, dict) else {}


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _cleaned(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_cleaned(entry, depth + 1) for entry in value]
    if isinstance(value, dict):
        return {well_formed(key): _cleaned(entry, depth + 1) for key, entry in value.items()}
    return value


def well_formed(text: str) -> str:
    """Text that can be encoded as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub(REPLACEMENT, text)


def printable(text: str) -> str:
    """Text for people and logs: control characters could move a terminal's cursor."""
    return _CONTROL.sub(REPLACEMENT, well_formed(text))


def is_plain_id(value: object) -> bool:
    """An id that is safe in URLs, file names, logs and tables."""
    return isinstance(value, str) and _PLAIN_ID.fullmatch(value) is not None


def is_header_token(value: object) -> bool:
    """A secret that can be sent in a header: visible ASCII, no spaces, at most 4096."""
    return isinstance(value, str) and _HEADER_TOKEN.fullmatch(value) is not None


def is_name(value: object) -> bool:
    """Text of one line that can be shown."""
    return isinstance(value, str) and len(value) <= MAX_NAME and _CONTROL.search(value) is None


def polled_job(answer: Mapping[str, Any]) -> tuple[Job, str | None] | None:
    """The job of a poll and the key that came with it; None without a job.

    Raises GatewayError for a job that could not even be answered for. What else is wrong with a
    job is for `job_flaw` to tell.
    """
    job = answer.get("job")
    if job is None:
        return None
    if not isinstance(job, Mapping):
        raise GatewayError(f"the gateway sent a job that is a {type(job).__name__}, not an object")
    if not is_plain_id(job.get("job_id")):
        shown = printable(str(job.get("job_id"))[:64])
        raise GatewayError(f"the gateway sent a job whose job_id cannot be used: {shown}")
    request_id = job.get("request_id")
    key = answer.get("attached_mswarm_api_key")
    return (
        {**job, "request_id": request_id if is_plain_id(request_id) else None},
        key if is_header_token(key) else None,
    )


def job_flaw(job: Job) -> str | None:
    """Why a job cannot be run, whatever it asks for; None when its shape is sound."""
    if job.get("request_id") is None:
        return f"request_id must be 1 to {MAX_ID} plain characters"
    for name in _NAMES:
        if job.get(name) is not None and not is_name(job[name]):
            return f"{name} must be one line of at most {MAX_NAME} characters"
    asked = job.get("openai_request")
    if not isinstance(asked, Mapping):
        return "openai_request must be an object"
    if asked.get("model") is not None and not is_name(asked["model"]):
        return f"openai_request.model must be one line of at most {MAX_NAME} characters"
    for name, most in (("messages", MAX_MESSAGES), ("tools", MAX_TOOLS)):
        entries = asked.get(name)
        if isinstance(entries, list) and len(entries) > most:
            return f"openai_request.{name} has {len(entries)} entries, at most {most} are taken"
    return None
