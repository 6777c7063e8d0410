"""The Responses API of the `openai` package."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.clients.checks import check
from tests.clients.openai_checks import client_of
from tests.inference.served import Served
from tests.inference.test_chat import SCHEMA, TOOL

PAINT: Any = {"type": "function", **TOOL["function"]}
EVENTS = [
    "response.created", "response.in_progress", "response.output_item.added",
    "response.content_part.added", "response.output_text.delta", "response.output_text.done",
    "response.content_part.done", "response.output_item.done", "response.incomplete",
]  # fmt: skip


def _asked(served: Served, **extra: Any) -> dict[str, Any]:
    return {
        "model": served.model,
        "input": "hello",
        "max_output_tokens": 12,
        "temperature": 0,
        **extra,
    }


@check("openai", "responses.create, whole and streamed")
def _create(served: Served) -> None:
    with client_of(served) as client:
        whole = client.responses.create(**_asked(served, instructions="be brief"))
        events = list(
            client.responses.create(**_asked(served, instructions="be brief"), stream=True)
        )
    assert whole.id.startswith("resp_")
    assert (whole.status, whole.instructions) == ("incomplete", "be brief")
    assert whole.usage
    assert whole.usage.output_tokens == 12
    assert list(dict.fromkeys(event.type for event in events)) == EVENTS
    assert [event.sequence_number for event in events] == list(range(1, len(events) + 1))
    assert events[-1].response.output_text == whole.output_text
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text


@check("openai", "responses.stream (helper)")
def _helper(served: Served) -> None:
    with client_of(served) as client:
        text = client.responses.create(**_asked(served)).output_text
        body = {"stop": text[len(text) // 2 :][:3]}
        with client.responses.stream(**_asked(served), extra_body=body) as stream:
            final = stream.get_final_response()
    assert final.status == "completed"
    assert final.output_text == text[: text.index(body["stop"])]


@check("openai", "responses with function calls, their outputs, `text.format`")
def _tools(served: Served) -> None:
    forced = {"type": "function", "name": "paint"}
    schema = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}
    with client_of(served) as client:
        asked = _asked(served, tools=[PAINT], tool_choice=forced, max_output_tokens=200)
        called = client.responses.create(**asked)
        events = list(client.responses.create(**asked, stream=True))
        [call] = called.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "painted"}
        after = client.responses.create(
            **_asked(served, input=[result], previous_response_id=called.id)
        )
        resent = client.responses.create(
            **_asked(served, input=[{"role": "user", "content": "hello"}, call, result])
        )
        typed = client.responses.create(**_asked(served, text=schema, max_output_tokens=200))
    assert (called.status, call.type, call.name) == ("completed", "function_call", "paint")
    assert json.loads(call.arguments)["colour"] in ("red", "green")
    [done] = [one for one in events if one.type == "response.function_call_arguments.done"]
    assert done.arguments == call.arguments
    assert after.usage
    assert resent.usage
    assert after.usage.input_tokens == resent.usage.input_tokens
    assert after.output_text == resent.output_text
    assert json.loads(typed.output_text).keys() == {"colour", "count"}


@check("openai", "responses.retrieve, delete, cancel, `previous_response_id`")
def _stored(served: Served) -> None:
    with client_of(served) as client:
        first = client.responses.create(**_asked(served))
        second = client.responses.create(
            **_asked(served, input="more", previous_response_id=first.id)
        )
        assert first.usage
        assert second.usage
        assert second.usage.input_tokens > first.usage.input_tokens + 12
        assert client.responses.retrieve(first.id).output_text == first.output_text
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        with pytest.raises(openai.NotFoundError) as gone:
            client.responses.create(**_asked(served, previous_response_id=first.id))
        assert gone.value.code == "previous_response_not_found"
        hidden = client.responses.create(**_asked(served, store=False))
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(hidden.id)
        long = _asked(served, max_output_tokens=2000, stream=True)
        with client.responses.create(**long) as stream:
            begun = next(iter(stream)).response
            assert client.responses.cancel(begun.id).status == "cancelled"
        served.wait_idle()
        assert client.responses.retrieve(begun.id).status == "cancelled"
        with pytest.raises(openai.BadRequestError):
            client.responses.cancel(begun.id)
