"""Every error body of the API, and other things that may be on a port."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skulkctl.daemon.answers import (
    Answer,
    Request,
    error_of,
    is_missing_route,
    message_lines,
    read_json,
)
from skulkctl.errors import (
    CliError,
    NotFound,
    Refused,
    RouteMissing,
    ServerFailed,
    Unauthorised,
    Unreachable,
)


def answer(status: int, body: Any, method: str = "GET") -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(method, "/state")
    return Answer(request, "http://kite1:52415", status, raw, {"x-request-id": "req-1"})


def envelope(message: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": "Some Phrase", "param": None, "code": code}}


INVALID = {
    "detail": [
        {"type": "bool_type", "loc": ["body", "enabled"], "msg": "not a boolean", "input": "yes"},
        {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None},
    ]
}


@pytest.mark.parametrize(
    ("status", "body", "kind", "why"),
    [
        (400, envelope("too small", 400), Refused, ("too small",)),
        (403, envelope("not from here", 403), Refused, ("not from here",)),
        (401, envelope("a token please", 401), Unauthorised, ("a token please",)),
        (404, envelope("Node not found: x", 404), NotFound, ("Node not found: x",)),
        (404, {"detail": "Not Found"}, RouteMissing, ("Not Found",)),
        (404, {"error": {"message": "no", "code": "unknown_url"}}, RouteMissing, ("no",)),
        (404, {"error": {"message": "no", "code": "model_not_found"}}, NotFound, ("no",)),
        (405, {"detail": "Method Not Allowed"}, RouteMissing, ("Method Not Allowed",)),
        (409, {"status": "restart_already_pending", "node_id": "x"}, Refused,
         ("restart already pending",)),
        (413, envelope("too large", 413), Refused, ("too large",)),
        (422, INVALID, Refused, ('enabled: not a boolean (given: "yes")', "Field required")),
        (500, b"Internal Server Error", ServerFailed,
         ("500 Internal Server Error: Internal Server Error",)),
        (502, envelope("peer failed", 502), ServerFailed, ("peer failed",)),
        (503, b"", ServerFailed, ("503 Service Unavailable",)),
        (
            507,
            b'{"error": {"message": "no space", "code": 507, "refusal": {"kind": "StorageFull"}}}',
            Refused,
            ("no space",),
        ),
        (302, b"", ServerFailed, ("302 Found",)),
        (599, b"<html>", ServerFailed, ("599: <html>",)),
    ],
)  # fmt: skip
def test_each_error_body_becomes_its_error(
    status: int, body: Any, kind: type[CliError], why: tuple[str, ...]
) -> None:
    error = error_of(answer(status, body))
    assert type(error) is kind
    assert error.why == why


def test_a_missing_object_is_not_a_missing_route() -> None:
    assert not is_missing_route(answer(404, envelope("Node not found", 404)))
    assert not is_missing_route(answer(404, {"detail": "Model not found"}))
    assert is_missing_route(answer(404, b"<html>404</html>"))


def test_details_hold_request_id_endpoint_and_status() -> None:
    assert dict(error_of(answer(400, envelope("no", 400))).details) == {
        "request": "GET /state",
        "endpoint": "http://kite1:52415",
        "status": "400 Bad Request",
        "request id": "req-1",
    }


def test_a_good_answer_that_is_not_json_comes_from_something_else() -> None:
    with pytest.raises(Unreachable, match="is not a Skulk node"):
        read_json(answer(200, b"<html>hello</html>"))


def test_a_message_of_several_lines_stays_readable_and_harmless() -> None:
    lines = message_lines(answer(400, envelope("a\n\nb\x1b[31m", 400)))
    assert lines == ["a", "b?[31m"]


def test_a_long_strange_body_is_shown_in_part() -> None:
    (line,) = message_lines(answer(500, b"x" * 5000))
    assert len(line) < 260
    assert line.endswith("...")
