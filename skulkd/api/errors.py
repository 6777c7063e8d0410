"""The error bodies of the API, as bytes, and the exceptions that lead to them.

    ApiError              a handler refuses on purpose          -> {"error": {...}}
    ├── ShuttingDown      the daemon is stopping                -> the same, status 503
    └── OpenAiNotFound    nothing under /v1/ has this name      -> the same, with a text as code
    InvalidRequest        a body or query breaks its schema     -> 422 {"detail": [...]}

Other unknown routes, and unknown methods, answer {"detail": "..."}; an uncaught exception is an
envelope with the request id. This module knows no handler and no request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import web
from pydantic_core import to_json

from skulkd import SERVER_NAME

JSON_TYPE = "application/json"
NO_HEADERS: Mapping[str, str] = {}
SERVER = SERVER_NAME
INPUT_ECHO_LIMIT = 2048
UNKNOWN_URL = "unknown_url"

_OK_HEADERS = {"Content-Type": JSON_TYPE, "Server": SERVER}

# Newer spellings than the standard library of Python 3.11 has.
_PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}


class ApiError(Exception):
    """A deliberate refusal: an HTTP status and a sentence for the person who asked."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        refusal: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers
        self.refusal = refusal


class ShuttingDown(ApiError):
    """The daemon is stopping and will not finish this request."""

    def __init__(self) -> None:
        # Another node, or this one after a restart, will answer.
        headers = {"Connection": "close", "Retry-After": "1"}
        super().__init__(503, "the daemon is shutting down", headers=headers)


class OpenAiNotFound(ApiError):
    """A 404 in the shape of OpenAI's API, whose clients read `code` as a text."""

    def __init__(self, message: str, code: str, param: str | None = None) -> None:
        super().__init__(404, message)
        self.code = code
        self.param = param

    def body(self) -> bytes:
        error = {
            "message": self.message,
            "type": "invalid_request_error",
            "param": self.param,
            "code": self.code,
        }
        return _compact({"error": error})


class InvalidRequest(Exception):
    """A body or query that breaks its schema: the items go out as `detail`."""

    def __init__(self, items: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(f"{len(items)} invalid values in the request")
        self.items = items


ErrorFormat = Callable[[ApiError], web.Response]
"""How an API family writes errors whose clients expect another body than ours."""


def invalid_text(error: InvalidRequest) -> str:
    """The first problem as a sentence that names the field."""
    first = error.items[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or "the request body"
    return f"{place}: {first['msg']}"


def phrase(status: int) -> str:
    """The reason phrase of a status; `type` of the error envelope."""
    if status in _PHRASES:
        return _PHRASES[status]
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def envelope(status: int, message: str, refusal: Mapping[str, Any] | None = None) -> bytes:
    """The body of a deliberate error; `refusal` is the same reason for programs."""
    error: dict[str, Any] = {
        "message": message,
        "type": phrase(status),
        "param": None,
        "code": status,
    }
    if refusal is not None:
        error["refusal"] = refusal
    return _compact({"error": error})


def detail_text(text: str) -> bytes:
    """The body of an unknown route or method."""
    return _compact({"detail": text})


def detail_items(items: Sequence[Mapping[str, Any]]) -> bytes:
    """The body of a failed validation; long inputs are cut, they are only an echo."""
    return to_json({"detail": [_printable(item) for item in items]}, inf_nan_mode="null")


def answer(status: int, body: bytes, *, headers: Mapping[str, str] = NO_HEADERS) -> web.Response:
    """A JSON answer from ready bytes."""
    return web.Response(
        status=status,
        reason=phrase(status),
        body=body,
        headers={"Content-Type": JSON_TYPE, "Server": SERVER, **headers},
    )


def ok(body: bytes) -> web.Response:
    """The same for 200, the answer that has to be fast."""
    return web.Response(body=body, headers=_OK_HEADERS)


def refusal(error: ApiError) -> web.Response:
    """The answer to a deliberate error."""
    if isinstance(error, OpenAiNotFound):
        body = error.body()
    else:
        body = envelope(error.status, error.message, error.refusal)
    return answer(error.status, body, headers=error.headers)


def unknown_route(method: str, path: str) -> web.Response:
    """The answer to a path that no route has."""
    if not path.startswith("/v1/"):
        return answer(404, detail_text("Not Found"))
    message = f"Unknown request URL: {method} {path[:200]} (see /api/docs)"
    return refusal(OpenAiNotFound(message, UNKNOWN_URL))


def _compact(body: dict[str, Any]) -> bytes:
    # ASCII, because a path may hold half a surrogate pair that UTF-8 cannot carry.
    return json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode()


def _printable(item: Mapping[str, Any]) -> dict[str, Any]:
    shown = {key: item[key] for key in ("type", "loc", "msg", "input") if key in item}
    encoded = to_json(shown.get("input"), inf_nan_mode="null", fallback=repr, bytes_mode="utf8")
    if len(encoded) > INPUT_ECHO_LIMIT:
        shown["input"] = encoded[:INPUT_ECHO_LIMIT].decode("utf-8", "replace") + "…"
    else:
        shown["input"] = json.loads(encoded)
    if "ctx" in item:
        shown["ctx"] = {key: _plain(value) for key, value in item["ctx"].items()}
    return shown


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
