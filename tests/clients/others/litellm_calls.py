"""Calls of `litellm`: its OpenAI, Anthropic and Ollama providers against one daemon."""

from __future__ import annotations

import json
from typing import Any

import litellm
from common import BAD_KEY, LONG, MESSAGES, Facts, fails, main, wait_idle

PROVIDERS = ("openai", "anthropic", "ollama_chat")


def asked(facts: Facts, provider: str = "openai", **extra: Any) -> dict[str, Any]:
    base = f"{facts['url']}/v1" if provider == "openai" else facts["url"]
    return {
        "model": f"{provider}/{facts['model']}", "api_base": base, "api_key": "none",
        "messages": MESSAGES, "max_tokens": 12, "temperature": 0, "max_retries": 0, **extra,
    }  # fmt: skip


def chat(facts: Facts) -> None:
    texts = set()
    for provider in PROVIDERS:
        whole = litellm.completion(**asked(facts, provider))
        parts = list(litellm.completion(**asked(facts, provider), stream=True))
        text = "".join(part.choices[0].delta.content or "" for part in parts)
        assert text == whole.choices[0].message.content, provider
        assert whole.usage.completion_tokens == 12, provider
        texts.add(text)
    assert len(texts) == 1, texts


def responses(facts: Facts) -> None:
    answer = litellm.responses(
        model=f"openai/{facts['model']}", api_base=f"{facts['url']}/v1", api_key="none",
        input="hello", max_output_tokens=20, temperature=0,
    )  # fmt: skip
    assert answer.usage.output_tokens == 20  # litellm raises less than 16 to 16


def tools(facts: Facts) -> None:
    forced = {"type": "function", "function": {"name": "paint"}}
    for provider in ("openai", "anthropic"):
        answer = litellm.completion(
            **asked(facts, provider, tools=[facts["tool"]], tool_choice=forced)
            | {"max_tokens": 200}
        )
        [call] = answer.choices[0].message.tool_calls
        assert call.function.name == "paint"
        assert json.loads(call.function.arguments)["colour"] in ("red", "green")


def schema(facts: Facts) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": facts["schema"]}}
    for provider in ("openai", "ollama_chat"):
        answer = litellm.completion(
            **asked(facts, provider, response_format=wanted) | {"max_tokens": 300}
        )
        assert json.loads(answer.choices[0].message.content).keys() == {"colour", "count"}


def errors(facts: Facts) -> None:
    for provider in ("openai", "anthropic"):
        unknown = asked(facts, provider) | {"model": f"{provider}/x/y"}
        fails(litellm.NotFoundError, lambda unknown=unknown: litellm.completion(**unknown), "x/y")
        bad_key = asked(facts, provider) | {"api_key": BAD_KEY}
        fails(litellm.AuthenticationError, lambda bad_key=bad_key: litellm.completion(**bad_key))
        long = asked(facts, provider) | {"messages": LONG}
        fails(
            litellm.BadRequestError, lambda long=long: litellm.completion(**long),
            "context_length_exceeded",
        )  # fmt: skip


def cancel(facts: Facts) -> None:
    stream = litellm.completion(**asked(facts) | {"max_tokens": 2000}, stream=True)
    next(iter(stream))
    stream.completion_stream.response.close()
    wait_idle(facts["url"])


main(
    {
        "chat": chat, "responses": responses, "tools": tools, "schema": schema, "errors": errors,
        "cancel": cancel,
    }
)  # fmt: skip
