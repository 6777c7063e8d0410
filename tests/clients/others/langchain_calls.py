"""Calls of `langchain-openai`, over chat completions and over the Responses API."""

from __future__ import annotations

from typing import Any

import openai
from common import BAD_KEY, LONG, Facts, fails, main, wait_idle
from langchain_openai import ChatOpenAI


def model(facts: Facts, **extra: Any) -> ChatOpenAI:
    settings = {
        "model": facts["model"], "base_url": f"{facts['url']}/v1", "api_key": "none",
        "temperature": 0, "max_tokens": 12, "max_retries": 0, **extra,
    }  # fmt: skip
    return ChatOpenAI(**settings)


def chat(facts: Facts) -> None:
    whole = model(facts).invoke("hello")
    parts = list(model(facts, stream_usage=True).stream("hello"))
    assert "".join(part.text for part in parts) == whole.text
    assert whole.usage_metadata["output_tokens"] == 12
    assert parts[-1].usage_metadata or any(part.usage_metadata for part in parts)


def responses(facts: Facts) -> None:
    client = model(facts, use_responses_api=True)
    whole = client.invoke("hello")
    assert whole.text
    assert whole.usage_metadata["output_tokens"] == 12
    assert "".join(part.text for part in client.stream("hello")) == whole.text


def tools(facts: Facts) -> None:
    bound = model(facts, max_tokens=200).bind_tools([facts["tool"]], tool_choice="paint")
    [call] = bound.invoke("hello").tool_calls
    assert call["name"] == "paint"
    assert call["args"]["colour"] in ("red", "green")


def schema(facts: Facts) -> None:
    titled = {"title": "x", "description": "a colour", **facts["schema"]}
    typed = model(facts, max_tokens=300).with_structured_output(titled, method="json_schema")
    assert typed.invoke("hello").keys() == {"colour", "count"}


def errors(facts: Facts) -> None:
    long = LONG[0]["content"]
    fails(openai.NotFoundError, lambda: model(facts, model="x/y").invoke("hello"), "x/y")
    fails(openai.AuthenticationError, lambda: model(facts, api_key=BAD_KEY).invoke("hello"))
    fails(openai.BadRequestError, lambda: model(facts).invoke(long), "context_length_exceeded")


def cancel(facts: Facts) -> None:
    stream = model(facts, max_tokens=2000).stream("hello")
    next(stream)
    stream.close()
    wait_idle(facts["url"])


main(
    {
        "chat": chat, "responses": responses, "tools": tools, "schema": schema, "errors": errors,
        "cancel": cancel,
    }
)  # fmt: skip
