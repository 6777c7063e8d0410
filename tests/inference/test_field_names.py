"""An error names a field as the API of the client does that sent it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inference.served import Served

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
LONG = {"messages": [{"role": "user", "content": "x" * 3000}]}
FAMILIES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("/v1/chat/completions", CHAT, LONG, "max_tokens"),
    ("/v1/chat/completions", CHAT, LONG, "max_completion_tokens"),
    ("/v1/completions", {"prompt": "hello"}, {"prompt": "x" * 3000}, "max_tokens"),
    ("/v1/responses", {"input": "hello"}, {"input": "x" * 3000}, "max_output_tokens"),
    ("/v1/messages", CHAT, LONG, "max_tokens"),
    ("/api/chat", CHAT, LONG, "num_predict"),
    ("/api/generate", {"prompt": "hello"}, {"prompt": "x" * 3000}, "num_predict"),
]


def refused(served: Served, path: str, body: dict[str, Any]) -> str:
    answer = served.post(path, {"model": served.model, "stream": False, **body})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    return str(error if isinstance(error, str) else error["message"])


def length(path: str, field: str, tokens: int) -> dict[str, Any]:
    return {"options": {field: tokens}} if path.startswith("/api/") else {field: tokens}


@pytest.mark.parametrize(("path", "short", "long", "field"), FAMILIES)
def test_a_length_that_does_not_fit_has_the_name_that_was_sent(
    served: Served, path: str, short: dict[str, Any], long: dict[str, Any], field: str
) -> None:
    alone = refused(served, path, {**short, **length(path, field, 5000)})
    assert alone.startswith(f"context_length_exceeded: {field} (5000)"), alone
    beside = refused(served, path, {**long, **length(path, field, 2000)})
    assert f"tokens and {field} is 2000, the limit is 4096 tokens" in beside


def test_a_prompt_that_is_too_long_by_itself_is_not_blamed_on_the_length(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": "x" * 9000}]}
    text = refused(served, "/v1/messages/count_tokens", body)
    assert "max_tokens" not in text
    assert text.startswith("context_length_exceeded: the prompt has 9")


@pytest.mark.parametrize(
    ("path", "body", "fragment"),
    [
        ("/api/chat", {**CHAT, "options": {"repeat_penalty": -1}}, "repeat_penalty must be"),
        ("/api/chat", {**CHAT, "format": {"type": "nothing"}}, "format cannot be followed"),
        (
            "/v1/responses",
            {
                "input": "hi",
                "text": {
                    "format": {"type": "json_schema", "name": "x", "schema": {"type": "nothing"}}
                },
            },
            "text.format cannot be followed",
        ),
    ],
)
def test_other_fields_have_the_name_that_was_sent(
    served: Served, path: str, body: dict[str, Any], fragment: str
) -> None:
    text = refused(served, path, body)
    assert text.startswith(fragment), text
