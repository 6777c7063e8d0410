"""From an HTTP answer to its JSON or to the right error. Pure.

Knows the four error bodies of the API, the bare ones, and what else may be on a port. Which
exception a code of the daemon stands for is in `codes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from skulkctl.daemon.codes import TLS_REQUIRED, TOKEN_REFUSED, UNKNOWN_ROUTE, exception_for
from skulkctl.errors import CliError, NotFound, Refused, RouteMissing, Unauthorised, Unreachable
from skulkctl.output.terminal import printable

_PREVIEW = 200


class Upload(NamedTuple):
    """A body that is sent piece by piece. The pieces are taken once, when there is a connection."""

    pieces: Iterator[bytes]
    length: int


class Request(NamedTuple):
    """An HTTP request to a daemon."""

    method: str
    path: str
    body: bytes | Upload | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def changes(self) -> bool:
        return self.method not in ("GET", "HEAD", "OPTIONS")

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Answer(NamedTuple):
    """An HTTP response of a daemon."""

    request: Request
    endpoint: str
    status: int
    body: bytes
    headers: Mapping[str, str] = {}
    note: Callable[[str], None] = lambda text: None
    """Details for `-v`."""

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


def raise_for_status(answer: Answer) -> None:
    """Raises the error that an answer outside 2xx stands for."""
    if not answer.ok:
        raise error_of(answer)


def read_json(answer: Answer) -> object:
    """The JSON of a good answer; raises the error that a bad one stands for."""
    raise_for_status(answer)
    try:
        return json.loads(answer.body)
    except ValueError:
        why = f"its response to {answer.request} is not JSON: {_preview(answer.body)}"
        raise not_a_node(answer, why) from None


def not_a_node(answer: Answer, why: str) -> Unreachable:
    """Something answers at the address, but not as a Skulk node does."""
    return Unreachable(
        f"{answer.endpoint} is not a Skulk node",
        why,
        hints=["check host and port:  skulkctl context list"],
        details=answer.details(),
    )


def is_missing_route(answer: Answer) -> bool:
    """Whether the server has no such endpoint, as opposed to no such object."""
    if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return True
    if answer.status != HTTPStatus.NOT_FOUND:
        return False
    document = _parsed(answer.body)
    error = _mapping(document, "error")
    if error:
        return error.get("code") == UNKNOWN_ROUTE
    return _text(document, "detail") in (None, "Not Found")


def code_of(answer: Answer) -> str | None:
    """The machine-readable code of a refusal; None where the server gives none."""
    return _text(_parsed(answer.body), "error", "refusal", "kind")


def error_of(answer: Answer) -> CliError:
    """The error that an answer outside 2xx stands for."""
    code = UNKNOWN_ROUTE if is_missing_route(answer) else code_of(answer)
    kind = exception_for(code, answer.status)
    what, hints = _headline(kind, answer, code)
    why = message_lines(answer)
    hints += _server_hints(answer, why)
    error = kind(what, *why, hints=hints, details=answer.details())
    error.code, error.status = code, answer.status
    return error


def _headline(kind: type[CliError], answer: Answer, code: str | None) -> tuple[str, list[str]]:
    """What happened, and what to do about it where that is the same for every command."""
    endpoint, request = answer.endpoint, answer.request
    if code == TLS_REQUIRED:
        secure = endpoint.replace("http://", "https://", 1)
        return f"{endpoint} speaks TLS only; the request was not processed", [
            f"skulkctl --endpoint {secure} ...",
            f"skulkctl context set NAME {secure}",
        ]
    if kind is Unauthorised:
        return _unauthorised(endpoint, code)
    headlines: dict[type[CliError], str] = {
        RouteMissing: f"this server cannot do that: {endpoint} has no {request}",
        NotFound: f"not found: {request}",
        Refused: f"{endpoint} refused {request}",
    }
    if kind in headlines:
        return headlines[kind], []
    if answer.status < 500:
        return f"{endpoint} answered {request} with {answer.status}", []
    return f"{endpoint} failed at {request}", [
        "read the daemon's log, or print more details:  skulkctl ... -v"
    ]


def _unauthorised(endpoint: str, code: str | None) -> tuple[str, list[str]]:
    has_one = code in TOKEN_REFUSED
    what = "rejected the token" if has_one else "requires authentication"
    return f"{endpoint} {what}", [
        "pass a token, or the cluster secret, in a file:  "
        f"skulkctl context add NAME {endpoint} --token-file FILE",
        'or for one command:  SKULK_TOKEN="$(cat FILE)" skulkctl ...',
    ]


def _server_hints(answer: Answer, why: list[str]) -> list[str]:
    """What the server suggests, unless its sentences say that already."""
    if answer.status == HTTPStatus.UNAUTHORIZED or any(line.startswith("hint:") for line in why):
        return []
    refusal = _mapping(_parsed(answer.body), "error", "refusal")
    return [printable(str(hint)) for hint in _sequence(refusal, "hints")]


def message_lines(answer: Answer) -> list[str]:
    """What the server says about its refusal, from any of its error bodies."""
    document = _parsed(answer.body)
    message = _text(document, "error", "message") or _text(document, "detail")
    if message:
        return [printable(line) for line in message.splitlines() if line.strip()]
    problems = [_validation_line(entry) for entry in _sequence(document, "detail")]
    if problems:
        return problems
    status = _text(document, "status")
    if status:
        return [status.replace("_", " ")]
    if document is None and answer.body:
        return [f"{_status(answer.status)}: {_preview(answer.body)}"]
    return [_status(answer.status)]


def _validation_line(entry: object) -> str:
    where = ".".join(str(part) for part in _sequence(entry, "loc") if part != "body")
    problem = _text(entry, "msg") or _text(entry, "type") or "is not valid"
    given = _dig(entry, "input")
    shown = f" (given: {_preview(json.dumps(given).encode())})" if given is not None else ""
    return printable(f"{where}: {problem}{shown}" if where else f"{problem}{shown}")


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


def _dig(document: object, *keys: str) -> object:
    """The value under nested keys; None as soon as one is missing: any server may have answered."""
    for key in keys:
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def _mapping(document: object, *keys: str) -> Mapping[str, object]:
    found = _dig(document, *keys)
    return found if isinstance(found, Mapping) else {}


def _sequence(document: object, *keys: str) -> Sequence[object]:
    found = _dig(document, *keys)
    return found if isinstance(found, list) else ()


def _text(document: object, *keys: str) -> str | None:
    found = _dig(document, *keys)
    return found if isinstance(found, str) and found else None
