"""The `anthropic` package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest
from anthropic.types import ErrorResponse

from tests.clients.checks import check
from tests.inference.served import DEADLINE_S, Served

PAINT: Any = {
    "name": "paint",
    "input_schema": {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}},
        "required": ["colour"],
        "additionalProperties": False,
    },
}
EVENTS = [
    "message_start", "content_block_start", "content_block_delta", "content_block_stop",
    "message_delta", "message_stop",
]  # fmt: skip


@contextmanager
def _client(served: Served, key: str = "none") -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=served.daemon.url, api_key=key, timeout=DEADLINE_S, max_retries=0
    ) as client:
        yield client


def _asked(served: Served, **extra: Any) -> dict[str, Any]:
    return {
        "model": served.model,
        "max_tokens": 12,
        "messages": [{"role": "user", "content": "hello"}],
        "extra_body": {"temperature": 0},
        **extra,
    }


@check("anthropic", "models.list, models.retrieve")
def _models(served: Served) -> None:
    with _client(served) as client:
        listed = list(client.models.list())
        assert served.model in [model.id for model in listed]
        assert client.models.retrieve(served.model).id == served.model


@check("anthropic", "a token as `x-api-key` or `auth_token`, its scope")
def _token(served: Served) -> None:
    for scope, allowed in (("infer", True), ("read", False)):
        wish = {"name": f"anthropic-{scope}", "scopes": [scope]}
        key = served.post("/v1/cluster/tokens", wish).json()["token"]
        with _client(served, key) as client, _client(served) as other:
            bearer = other.copy(api_key=None, auth_token=key)
            for one in (client, bearer):
                if allowed:
                    assert one.messages.create(**_asked(served)).content
                    continue
                with pytest.raises(anthropic.PermissionDeniedError) as refused:
                    one.messages.create(**_asked(served))
                body = ErrorResponse.model_validate(refused.value.body)
                assert body.error.type == "permission_error"


@check("anthropic", "messages.create")
def _create(served: Served) -> None:
    with _client(served) as client:
        message = client.messages.create(**_asked(served, system="be brief"))
    assert message.id.startswith("msg_")
    assert message._request_id
    assert [block.type for block in message.content] == ["text"]
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 12)
    used = message.usage
    assert used.input_tokens + (used.cache_read_input_tokens or 0) > 12


@check("anthropic", "messages.stream")
def _stream(served: Served) -> None:
    with _client(served) as client:
        whole = client.messages.create(**_asked(served))
        with client.messages.create(**_asked(served), stream=True) as raw:
            kinds = [event.type for event in raw]
        with client.messages.stream(**_asked(served)) as stream:
            final = stream.get_final_message()
    assert list(dict.fromkeys(kinds)) == EVENTS
    assert final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == 12


@check("anthropic", "stop_sequences")
def _stop(served: Served) -> None:
    with _client(served) as client:
        text = client.messages.create(**_asked(served)).content[0].text
        stop = text[len(text) // 2 :][:3]
        message = client.messages.create(**_asked(served, stop_sequences=[stop]))
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    shown = "".join(block.text for block in message.content)
    assert shown == text[: text.index(stop)]


@check("anthropic", "tools, whole and streamed, and their results")
def _tools(served: Served) -> None:
    asked = _asked(
        served, max_tokens=200, tools=[PAINT], tool_choice={"type": "tool", "name": "paint"}
    )
    with _client(served) as client:
        message = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        [use] = message.content
        results: Any = [
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": use.id, "name": use.name, "input": use.input},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": use.id, "content": "painted"},
                {"type": "text", "text": "and now?"},
            ]},
        ]  # fmt: skip
        after = client.messages.create(**_asked(served, messages=[*asked["messages"], *results]))
    assert message.stop_reason == streamed.stop_reason == "tool_use"
    assert use.input["colour"] in ("red", "green")
    assert streamed.content[0].input == use.input
    assert after.usage.output_tokens == 12


@check("anthropic", "tool_choice any and none, thinking, beta.messages")
def _choices(served: Served) -> None:
    with _client(served) as client:
        asked = _asked(served, max_tokens=200, tools=[PAINT])
        called = client.messages.create(**asked, tool_choice={"type": "any"})
        talked = client.messages.create(**asked, tool_choice={"type": "none"})
        thinking: Any = {"type": "enabled", "budget_tokens": 1024}
        thought = client.messages.create(**_asked(served, thinking=thinking))
        beta = client.beta.messages.create(**_asked(served), betas=["x-2025-01-01"])
    assert called.stop_reason == "tool_use"
    assert "tool_use" not in [block.type for block in talked.content]
    assert thought.usage.output_tokens == beta.usage.output_tokens == 12


@check("anthropic", "output_config with a JSON schema")
def _schema(served: Served) -> None:
    wanted = {"format": {"type": "json_schema", "schema": PAINT["input_schema"]}}
    with _client(served) as client:
        message = client.messages.create(**_asked(served, max_tokens=200, output_config=wanted))
    assert message.content[0].text.replace(" ", "") in ('{"colour":"red"}', '{"colour":"green"}')


@check("anthropic", "messages.count_tokens")
def _count(served: Served) -> None:
    messages: Any = [{"role": "user", "content": "hello"}]
    with _client(served) as client:
        counted = client.messages.count_tokens(model=served.model, messages=messages)
        used = client.messages.create(**_asked(served)).usage
    assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


@check("anthropic", "errors: unknown model, bad value, overlong prompt, image, bad key")
def _errors(served: Served) -> None:
    image: Any = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}
    long: Any = [{"role": "user", "content": "a " * 9000}]
    bad: list[tuple[dict[str, Any], type[anthropic.APIStatusError], str]] = [
        ({"model": "x/y"}, anthropic.NotFoundError, "not_found_error"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "invalid_request_error"),
        ({"max_tokens": "many"}, anthropic.BadRequestError, "invalid_request_error"),
        ({"messages": long}, anthropic.BadRequestError, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": [image]}]}, anthropic.BadRequestError,
         "invalid_request_error"),
    ]  # fmt: skip
    with _client(served) as client:
        for extra, kind, named in bad:
            with pytest.raises(kind) as failed:
                client.messages.create(**_asked(served, **extra))
            body = ErrorResponse.model_validate(failed.value.body)
            assert (body.error.type, body.request_id) == (named, failed.value.request_id)
    with (
        _client(served, key="skt_0000000000000000_none") as stranger,
        pytest.raises(anthropic.AuthenticationError) as refused,
    ):
        stranger.messages.create(**_asked(served))
    assert ErrorResponse.model_validate(refused.value.body).error.type == "authentication_error"


@check("anthropic", "cancelling a stream")
def _cancel(served: Served) -> None:
    with _client(served) as client:
        asked = _asked(served, max_tokens=2000)
        with client.messages.create(**asked, stream=True) as stream:
            next(iter(stream))
    served.wait_idle()
