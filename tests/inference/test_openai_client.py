"""The `openai` client itself against a real daemon: what it expects is what it gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.inference.served import DEADLINE_S, END_OF_ANSWER, Served
from tests.inference.test_chat import SCHEMA, TOOL

MESSAGES: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    url = f"{served.daemon.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", timeout=DEADLINE_S, max_retries=0) as one:
        yield one


def test_a_stream_is_read_chunk_by_chunk(client: openai.OpenAI, served: Served) -> None:
    chunks = list(
        client.chat.completions.create(
            model=served.model,
            messages=MESSAGES,
            stream=True,
            temperature=0,
            max_completion_tokens=24,
            logit_bias={END_OF_ANSWER: -100},
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == served.chat()["choices"][0]["message"]["content"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 24
    assert chunks[-2].choices[0].finish_reason == "length"


def test_a_tool_call_is_parsed_whole_and_streamed(client: openai.OpenAI, served: Served) -> None:
    asked: Any = {
        "model": served.model,
        "messages": MESSAGES,
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "paint"}},
        "max_tokens": 200,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**asked)
    calls = whole.choices[0].message.tool_calls
    assert calls
    assert calls[0].type == "function"
    assert json.loads(calls[0].function.arguments)["colour"] in ("red", "green")
    chunks = list(client.chat.completions.create(**asked, stream=True))
    [streamed] = [call for c in chunks for call in c.choices[0].delta.tool_calls or []]
    assert (streamed.index, streamed.type) == (0, "function")
    assert streamed.function.name == "paint"
    assert streamed.function.arguments == calls[0].function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_tool_result_goes_back_into_the_conversation(
    client: openai.OpenAI, served: Served
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "paint", "arguments": "{}"}}
    messages: Any = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "painted"},
    ]
    answer = client.chat.completions.create(
        model=served.model, messages=messages, max_tokens=4, temperature=0
    )
    assert answer.choices[0].message.content


def test_json_follows_a_schema(client: openai.OpenAI, served: Served) -> None:
    answer = client.chat.completions.create(
        model=served.model,
        messages=MESSAGES,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": SCHEMA, "strict": True},
        },
        max_tokens=200,
    )
    said = json.loads(answer.choices[0].message.content or "")
    assert said.keys() == {"colour", "count"}


def test_logprobs_are_understood(client: openai.OpenAI, served: Served) -> None:
    answer = client.chat.completions.create(
        model=served.model,
        messages=MESSAGES,
        max_tokens=5,
        logprobs=True,
        top_logprobs=2,
        logit_bias={END_OF_ANSWER: -100},
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [len(token.top_logprobs) for token in logprobs.content] == [2] * 5


def test_an_over_long_prompt_is_a_bad_request(client: openai.OpenAI, served: Served) -> None:
    with pytest.raises(openai.BadRequestError, match="context_length_exceeded"):
        client.chat.completions.create(
            model=served.model, messages=[{"role": "user", "content": "x" * 5000}]
        )


def test_an_unplaced_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="No instance found"):
        client.chat.completions.create(model="org/other", messages=MESSAGES)


def test_models_and_text_completions_are_understood(client: openai.OpenAI, served: Served) -> None:
    assert served.model in {model.id for model in client.models.list()}
    answer = client.completions.create(
        model=served.model,
        prompt="hello",
        max_tokens=6,
        temperature=0,
        logprobs=1,
        logit_bias={END_OF_ANSWER: -100},
    )
    assert answer.choices[0].text
    assert answer.choices[0].logprobs is not None
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6
