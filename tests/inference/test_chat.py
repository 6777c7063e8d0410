"""Chat with a real daemon, a real runner and the tiny model."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from skulkd.wire.chat import (
    BenchChatCompletionResponse,
    ChatCompletionChunk,
    ChatCompletionResponse,
    GenerationStats,
)
from skulkd.wire.completions import CompletionResponse
from tests.api.test_endpoints import check_schema
from tests.inference.served import Served, together
from tests.runner.reference import Reference

# The tiny model is of random weights: its greedy answers are fixed, and say nothing.
LONG = 64


def test_whole_and_streamed_answers_say_the_same(served: Served) -> None:
    whole = served.chat(max_tokens=LONG)
    streamed = served.stream(max_tokens=LONG)
    [choice] = whole["choices"]
    assert streamed.status == 200
    assert streamed.done
    assert streamed.content() == choice["message"]["content"] != ""
    assert streamed.finish_reason() == choice["finish_reason"] == "length"
    last = streamed.bodies[-1]["usage"]
    assert last["completion_tokens"] == whole["usage"]["completion_tokens"] == LONG
    assert last["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert all(body["usage"] is None for body in streamed.bodies[:-1])


def test_answers_are_of_the_contract(served: Served) -> None:
    whole = served.chat(logprobs=True, top_logprobs=2)
    ChatCompletionResponse.model_validate(whole)
    document = served.daemon.get("/api/openapi.json")
    content = document["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    check_schema(document, content["application/json"]["schema"], whole)
    streamed = served.stream()
    assert streamed.frames[0] == ": keep-alive"
    assert re.fullmatch(r"[0-9a-f-]{36}", streamed.command_id)
    for body in streamed.bodies:
        ChatCompletionChunk.model_validate(body)
        assert body["id"] == streamed.command_id
        assert body["object"] == "chat.completion.chunk"
    progress = [f for f in streamed.frames if f.startswith(": prefill_progress ")]
    assert progress
    assert "processed_tokens" in progress[0]
    stats, done = streamed.frames[-2:]
    told = GenerationStats.model_validate_json(stats.removeprefix(": generation_stats "))
    assert (told.serving_batches, told.in_flight_at_admission) == (True, 1)
    assert "in_bytes" in stats
    assert done == "data: [DONE]"


@pytest.mark.parametrize("content", ["hello", "What is the capital of France?", "äöü 漢字 🙂"])
def test_greedy_answers_are_those_of_mlx_lm(
    served: Served, reference: Reference, content: str
) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": content}]
    expected = reference.greedy(messages, LONG)
    whole = served.chat(messages=messages, max_tokens=LONG, logit_bias=None)
    assert whole["choices"][0]["message"]["content"] == expected["text"]
    assert whole["usage"]["completion_tokens"] == expected["tokens"]
    assert whole["usage"]["prompt_tokens"] == expected["prompt"]


def test_clients_at_the_same_time_get_the_answers_they_would_get_alone(served: Served) -> None:
    prompts = [f"prompt number {number} " * (number + 1) for number in range(8)]
    alone = [served.chat(prompt)["choices"][0]["message"]["content"] for prompt in prompts]
    side_by_side = together(8, lambda number: served.stream(prompts[number]))
    assert [answer.content() for answer in side_by_side] == alone
    assert all(answer.done for answer in side_by_side)


def test_a_stop_string_ends_the_answer_before_it(served: Served) -> None:
    text = served.chat(max_tokens=LONG)["choices"][0]["message"]["content"]
    stop = text[10:14]
    expected = text[: text.index(stop)]
    for answer in (
        served.stream(max_tokens=LONG, stop=stop),
        served.stream(max_tokens=LONG, stop=[stop]),
    ):
        assert answer.content() == expected
        assert answer.finish_reason() == "stop"


def test_several_choices_are_numbered_and_counted_together(served: Served) -> None:
    sampled = {"n": 2, "temperature": 1.5, "seed": 7, "max_tokens": 12}
    whole = served.chat(**sampled)
    first, second = whole["choices"]
    assert (first["index"], second["index"]) == (0, 1)
    assert first["message"]["content"] != second["message"]["content"]
    assert whole["usage"]["completion_tokens"] == 24
    streamed = served.stream(**sampled)
    assert [streamed.content(at) for at in (0, 1)] == [
        choice["message"]["content"] for choice in (first, second)
    ]


def test_a_seed_repeats_an_answer_and_none_does_not(served: Served) -> None:
    def said(**extra: Any) -> str:
        body = served.chat(temperature=2.0, max_tokens=32, **extra)
        return str(body["choices"][0]["message"]["content"])

    assert said(seed=3) == said(seed=3) != said(seed=4)
    assert len({said() for _ in range(3)}) > 1


def test_logprobs_are_of_every_token_with_its_rivals(served: Served) -> None:
    body = served.chat(max_tokens=8, logprobs=True, top_logprobs=3)
    tokens = body["choices"][0]["logprobs"]["content"]
    assert len(tokens) == 8
    for token in tokens:
        assert len(token["top_logprobs"]) == 3
        assert token["logprob"] == max(top["logprob"] for top in token["top_logprobs"]) <= 0


def test_a_bias_forces_a_token_and_max_completion_tokens_ends_it(served: Served) -> None:
    body = served.chat(max_tokens=None, max_completion_tokens=3, logit_bias={"50": 100})
    text = body["choices"][0]["message"]["content"]
    assert len(text) == 3
    assert len(set(text)) == 1
    assert body["usage"]["completion_tokens"] == 3


def test_penalties_change_what_is_said(served: Served) -> None:
    plain = served.chat(max_tokens=LONG)["choices"][0]["message"]["content"]
    for penalty in ({"frequency_penalty": 2.0}, {"presence_penalty": 2.0}):
        other = served.chat(max_tokens=LONG, **penalty)["choices"][0]["message"]["content"]
        assert other != plain


SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["colour", "count"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_follows_its_json_schema(served: Served, streamed: bool) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    extra = {"response_format": wanted, "max_tokens": 200}
    if streamed:
        text = served.stream(**extra).content()
    else:
        text = served.chat(**extra)["choices"][0]["message"]["content"]
    jsonschema.validate(json.loads(text), SCHEMA)


TOOL = {
    "type": "function",
    "function": {
        "name": "paint",
        "description": "Paints.",
        "parameters": {
            "type": "object",
            "properties": {"colour": {"enum": ["red", "green"]}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    },
}


def test_a_forced_tool_call_comes_whole_in_one_frame(served: Served) -> None:
    extra = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 200}
    whole = served.chat(**extra)["choices"][0]
    [call] = whole["message"]["tool_calls"]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] == ""
    assert call["function"]["name"] == "paint"
    assert json.loads(call["function"]["arguments"])["colour"] in ("red", "green")
    assert call["id"] == call["function"]["id"]
    streamed = served.stream(**extra)
    with_calls = [b for b in streamed.bodies if b["choices"][0]["delta"]["tool_calls"]]
    assert len(with_calls) == 1
    assert with_calls[0]["choices"][0]["finish_reason"] == "tool_calls"
    assert with_calls[0]["usage"] is not None


def test_usage_is_a_frame_of_its_own_when_asked_for(served: Served) -> None:
    streamed = served.stream(stream_options={"include_usage": True})
    *others, last = streamed.bodies
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 24
    assert all(body["usage"] is None for body in others)


def test_a_conversation_goes_on_from_what_is_known(served: Served) -> None:
    messages = [{"role": "user", "content": "tell me a long story " * 20}]
    first = served.chat(messages=messages)
    messages += [first["choices"][0]["message"] | {"tool_calls": None}]
    messages += [{"role": "user", "content": "and then?"}]
    second = served.chat(messages=messages)["usage"]
    assert second["prompt_tokens_details"]["cached_tokens"] > 0.8 * first["usage"]["prompt_tokens"]


def test_raw_text_is_continued_without_a_template(served: Served) -> None:
    body = {"model": served.model, "prompt": "hello", "temperature": 0, "logprobs": 1}
    answer = served.post("/v1/completions", body)
    whole = CompletionResponse.model_validate(answer.json())
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == 5
    assert whole.usage.completion_tokens == 16
    [choice] = whole.choices
    assert choice.logprobs is not None
    assert len(choice.logprobs.tokens) == 16
    frames = served.post("/v1/completions", {**body, "stream": True}).text.split("\n\n")
    bodies = [json.loads(frame[6:]) for frame in frames if frame.startswith("data: {")]
    assert "".join(body["choices"][0]["text"] for body in bodies) == choice.text
    echoed = served.post("/v1/completions", {**body, "echo": True}).json()
    assert echoed["choices"][0]["text"] == "hello" + choice.text


def test_a_bench_answer_has_its_speed(served: Served) -> None:
    answer = served.post("/bench/chat/completions", served.body(stream=True))
    body = BenchChatCompletionResponse.model_validate(answer.json())
    assert body.usage is None
    assert body.generation_stats is not None
    assert body.generation_stats.generation_tokens == 24
    assert body.generation_stats.generation_tps > 0
    told = answer.json()["generation_stats"]
    assert (told["serving_batches"], told["in_flight_at_admission"]) == (True, 1)
    assert "inBytes" in answer.text


@pytest.mark.parametrize(
    ("extra", "fragment"),
    [
        ({"messages": []}, "nothing to generate from"),
        ({"max_tokens": 0}, "must be positive"),
        ({"max_tokens": 4096}, "context_length_exceeded: max_tokens (4096)"),
        ({"temperature": -1}, "temperature"),
        ({"logit_bias": {"9999": 1}}, "no token 9999"),
        ({"response_format": {"type": "poem"}}, "response_format"),
        ({"tool_choice": "required"}, "no tools"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_what_cannot_be_answered_is_refused_with_a_reason(
    served: Served, extra: dict[str, Any], fragment: str, streamed: bool
) -> None:
    error = served.refusal(stream=streamed, **extra)
    assert error["code"] == 400
    assert fragment in error["message"]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_prompt_of_a_hundred_thousand_tokens_is_refused_before_any_work(
    served: Served, streamed: bool
) -> None:
    error = served.refusal("x" * 100_000, stream=streamed)
    assert error["code"] == 400
    assert error["message"].startswith("context_length_exceeded:")
    assert "4096" in error["message"]
    [record] = served.records()
    events = [(e["phase"], e["event"]) for e in record["flightRecorder"]]
    refused = events.index(("completion", "context_admission_rejected"))
    assert "prefill_stream" not in {phase for phase, _ in events[refused:]}
