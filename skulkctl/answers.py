"""From an HTTP answer to its JSON or to the right error. Pure.

Knows the four error bodies of the API, the bare ones, and what else may be on a port.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from skulkctl.errors import (
    CliError,
    NotFound,
    Refused,
    RouteMissing,
    ServerFailed,
    Unauthorised,
    Unreachable,
)
from skulkctl.screen import printable
from skulkctl.views.read import dig, mapping, sequence, text

_PREVIEW = 200
_UNKNOWN_URL = "unknown_url"
_NEEDS_TLS = "tls_required"
_TOKEN_REFUSED = ("token_unknown", "token_revoked", "token_expired", "secret_not_accepted")


@dataclass(frozen=True)
class Request:
    """What is asked of a daemon."""

    method: str
    path: str
    body: bytes | None = None

    @property
    def changes(self) -> bool:
        return self.method not in ("GET", "HEAD", "OPTIONS")

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Answer:
    """What a daemon said."""

    request: Request
    endpoint: str
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())

    def details(self) -> list[tuple[str, str]]:
        """What `-v` shows below an error."""
        return [
            ("request", str(self.request)),
            ("endpoint", self.endpoint),
            ("status", _status(self.status)),
            ("request id", self.header("x-request-id") or "none given"),
        ]


def read_json(answer: Answer) -> object:
    """The JSON of a good answer; raises the error that a bad one stands for."""
    if not answer.ok:
        raise error_of(answer)
    try:
        return json.loads(answer.body)
    except ValueError:
        raise Unreachable(
            f"{answer.endpoint} is not a Skulk node",
            f"its answer to {answer.request} is not JSON: {_preview(answer.body)}",
            hints=["check host and port:  skulkctl context list"],
            details=answer.details(),
        ) from None


def is_missing_route(answer: Answer) -> bool:
    """Whether the server has no such endpoint, as opposed to no such object."""
    if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return True
    if answer.status != HTTPStatus.NOT_FOUND:
        return False
    document = _parsed(answer.body)
    error = mapping(document, "error")
    if error:
        return error.get("code") == _UNKNOWN_URL
    return text(document, "detail") in (None, "Not Found")


def error_of(answer: Answer) -> CliError:
    """The error that an answer outside 2xx stands for."""
    why = message_lines(answer)
    what = f"{answer.endpoint} refused {answer.request}"
    details = answer.details()
    if is_missing_route(answer):
        what = f"this server cannot do that: {answer.endpoint} has no {answer.request}"
        return RouteMissing(what, *why, details=details)
    if text(_parsed(answer.body), "error", "refusal", "kind") == _NEEDS_TLS:
        secure = answer.endpoint.replace("http://", "https://", 1)
        hints = [f"skulkctl --endpoint {secure} ...", f"skulkctl context set NAME {secure}"]
        what = f"{answer.endpoint} speaks TLS only; nothing was done"
        return Unreachable(what, *why, hints=hints, details=details)
    if answer.status == HTTPStatus.NOT_FOUND:
        return NotFound(f"not found: {answer.request}", *why, details=details)
    if answer.status == HTTPStatus.UNAUTHORIZED:
        return _unauthorised(answer)
    # A disk that is full, or no master yet: a refusal with its code, whatever the status.
    if 400 <= answer.status < 500 or text(_parsed(answer.body), "error", "refusal", "kind"):
        return Refused(what, *why, hints=_refusal_hints(answer, why), details=details)
    what = f"{answer.endpoint} answered {answer.request} with {answer.status}"
    hints = []
    if answer.status >= 500:
        what = f"{answer.endpoint} failed at {answer.request}"
        hints = ["look into the daemon's log, or say more:  skulkctl ... -v"]
    return ServerFailed(what, *why, hints=hints, details=details)


def _unauthorised(answer: Answer) -> Unauthorised:
    code = text(_parsed(answer.body), "error", "refusal", "kind")
    what = f"{answer.endpoint} requires authentication"
    if code in _TOKEN_REFUSED:
        what = f"{answer.endpoint} did not accept the token"
    hints = [
        "give a token, or the cluster secret, in a file:  skulkctl context add NAME "
        f"{answer.endpoint} --token-file FILE",
        'or for one command:  SKULK_TOKEN="$(cat FILE)" skulkctl ...',
    ]
    return Unauthorised(what, *message_lines(answer), hints=hints, details=answer.details())


def _refusal_hints(answer: Answer, why: list[str]) -> list[str]:
    """What the server suggests, unless its sentences say that already."""
    if any(line.startswith("hint:") for line in why):
        return []
    refusal = mapping(_parsed(answer.body), "error", "refusal")
    return [printable(str(hint)) for hint in sequence(refusal, "hints")]


def message_lines(answer: Answer) -> list[str]:
    """What the server says about its refusal, from any of its error bodies."""
    document = _parsed(answer.body)
    message = text(document, "error", "message") or text(document, "detail")
    if message:
        return [printable(line) for line in message.splitlines() if line.strip()]
    problems = [_validation_line(entry) for entry in sequence(document, "detail")]
    if problems:
        return problems
    status = text(document, "status")
    if status:
        return [status.replace("_", " ")]
    if document is None and answer.body:
        return [f"{_status(answer.status)}: {_preview(answer.body)}"]
    return [_status(answer.status)]


def _validation_line(entry: object) -> str:
    where = ".".join(str(part) for part in sequence(entry, "loc") if part != "body")
    said = text(entry, "msg") or text(entry, "type") or "is not valid"
    given = dig(entry, "input")
    shown = f" (given: {_preview(json.dumps(given).encode())})" if given is not None else ""
    return printable(f"{where}: {said}{shown}" if where else f"{said}{shown}")


def _parsed(body: bytes) -> object:
    try:
        parsed: object = json.loads(body)
    except ValueError:
        return None
    return parsed


def _preview(body: bytes) -> str:
    line = printable(body[: _PREVIEW + 1].decode("utf-8", "replace").strip()) or "nothing"
    return line if len(body) <= _PREVIEW else f"{line[:_PREVIEW]}..."


def _status(status: int) -> str:
    """`404 Not Found`, or the bare number of a status nobody knows."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
