"""The `openai` package. Its plain chat calls are tested in tests/inference, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from tests.clients.checks import check
from tests.inference.served import DEADLINE_S, END_OF_ANSWER, Served
from tests.inference.test_chat import SCHEMA, TOOL


@contextmanager
def client_of(served: Served, key: str = "none") -> Iterator[openai.OpenAI]:
    url = f"{served.daemon.url}/v1"
    with openai.OpenAI(base_url=url, api_key=key, timeout=DEADLINE_S, max_retries=0) as client:
        yield client


def _asked(served: Served, **extra: Any) -> dict[str, Any]:
    return {
        "model": served.model,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 12,
        "temperature": 0,
        "logit_bias": {END_OF_ANSWER: -100},
        **extra,
    }


@check("openai", "models.list, models.retrieve")
def _models(served: Served) -> None:
    with client_of(served) as client:
        assert served.model in [model.id for model in client.models.list()]
        assert client.models.retrieve(served.model).id == served.model


@check("openai", "chat.completions.create, whole and streamed")
def _chat(served: Served) -> None:
    with client_of(served) as client:
        whole = client.chat.completions.create(**_asked(served))
        chunks = list(client.chat.completions.create(**_asked(served), stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


@check("openai", "chat.completions.stream (helper)")
def _helper(served: Served) -> None:
    with client_of(served) as client:
        text = client.chat.completions.create(**_asked(served)).choices[0].message.content or ""
        # The helper raises for an answer that was cut off by its length.
        stop = text[len(text) // 2 :][:3]
        with client.chat.completions.stream(**_asked(served, stop=stop)) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == text[: text.index(stop)]
    assert final.choices[0].finish_reason == "stop"


@check("openai", "chat with tools and with a JSON schema")
def _tools(served: Served) -> None:
    forced = {"type": "function", "function": {"name": "paint"}}
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    with client_of(served) as client:
        called = client.chat.completions.create(
            **_asked(served, tools=[TOOL], tool_choice=forced, max_tokens=200)
        )
        typed = client.chat.completions.create(
            **_asked(served, response_format=schema, max_tokens=200)
        )
    [call] = called.choices[0].message.tool_calls or ()
    assert json.loads(call.function.arguments)["colour"] in ("red", "green")
    assert json.loads(typed.choices[0].message.content or "").keys() == {"colour", "count"}


@check("openai", "completions.create")
def _completions(served: Served) -> None:
    with client_of(served) as client:
        answer = client.completions.create(
            model=served.model, prompt="hello", max_tokens=4, logit_bias={END_OF_ANSWER: -100}
        )
    assert answer.usage
    assert answer.usage.completion_tokens == 4


@check("openai", "errors: unknown model, bad value, overlong prompt, bad key")
def _errors(served: Served) -> None:
    long = [{"role": "user", "content": "a " * 9000}]
    with client_of(served) as client:
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(**_asked(served, model="x/y"))
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.chat.completions.create(**_asked(served, temperature=-1))
        with pytest.raises(openai.BadRequestError, match="context_length_exceeded"):
            client.chat.completions.create(**_asked(served, messages=long))
    with (
        client_of(served, key="skt_0000000000000000_none") as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


@check("openai", "cancelling a stream")
def _cancel(served: Served) -> None:
    with client_of(served) as client:
        asked = _asked(served, max_tokens=2000, stream=True)
        with client.chat.completions.create(**asked) as stream:
            next(iter(stream))
    served.wait_idle()
