"""From the body of a chat request to what the worker takes."""

from __future__ import annotations

from typing import Any

import pytest

from skulkd.requests.chat_params import Thinking, chat_params, max_tokens, resolve_thinking
from skulkd.requests.errors import RequestError
from skulkd.requests.generation_params import GenerationParams, check_budget
from skulkd.wire.catalogue import ResolvedModelCapabilities
from skulkd.wire.chat import ChatCompletionRequest

PLAIN = ResolvedModelCapabilities()
HELLO = [{"role": "user", "content": "hello"}]


def read(messages: Any = None, **fields: Any) -> GenerationParams:
    body = {"model": "org/name", "messages": HELLO if messages is None else messages, **fields}
    return chat_params(ChatCompletionRequest.model_validate(body), PLAIN)


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def test_a_dialogue_becomes_input_and_instructions() -> None:
    params = read(
        [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [text("a"), text("b")]},
            {"role": "developer", "content": "and kind"},
            {"role": "assistant", "content": text("c")},
            {"role": "user", "content": ""},
            {"role": "user", "content": None},
        ]
    )
    assert params.task.instructions == "be brief\nand kind"
    said = [(message.role, message.content) for message in params.task.input]
    assert said == [("user", "a\nb"), ("assistant", "c"), ("user", "")]
    assert params.task.chat_template_messages is None


def test_calls_and_their_results_reach_the_template_whole() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    params = read(
        [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ]
    )
    whole = params.task.chat_template_messages
    assert whole is not None
    assert whole[0] == {"role": "system", "content": "be brief"}
    assert whole[2]["tool_calls"][0]["function"]["name"] == "f"
    assert whole[3] == {"role": "tool", "content": "42", "tool_call_id": "c1"}


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": None}]])
def test_nothing_to_say_is_refused(messages: Any) -> None:
    with pytest.raises(RequestError, match="nothing to generate from") as refusal:
        read(messages)
    assert refusal.value.code == "invalid_request"


def test_an_image_is_refused() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    with pytest.raises(RequestError, match="images"):
        read([{"role": "user", "content": [part]}])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1), ("temperature", float("nan")), ("top_p", 1.5), ("min_p", -1),
        ("repetition_penalty", 0), ("presence_penalty", 3), ("frequency_penalty", -3),
        ("top_logprobs", 21), ("n", 0), ("n", 1000), ("repetition_context_size", -1),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_named(field: str, value: float) -> None:
    with pytest.raises(RequestError, match=f"{field} must be between"):
        read(**{field: value})


def test_everything_a_client_may_ask_for_is_passed_on() -> None:
    params = read(
        n=3,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        logit_bias={"7": -100},
        response_format={"type": "json_object"},
        tools=[{"type": "function", "function": {"name": "f"}}],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=3,
        max_completion_tokens=5,
        stop=["a", ""],
        seed=1,
        top_k=4,
    )
    options, params = params.options, params.task
    assert (options.n, options.frequency_penalty, options.presence_penalty) == (3, 0.5, -0.5)
    assert options.logit_bias == {"7": -100.0}
    assert options.response_format == {"type": "json_object"}
    assert (options.tool_choice, options.parallel_tool_calls) == ("required", False)
    assert (params.max_output_tokens, params.seed, params.top_k) == (5, 1, 4)
    assert params.stop == ["a"]
    assert params.tools is not None


@pytest.mark.parametrize(
    ("logprobs", "top", "expected"),
    [
        (None, None, (False, None)), (None, 2, (True, 2)), (True, None, (True, None)),
        (True, 0, (True, 0)), (False, 5, (False, None)),
    ],
)  # fmt: skip
def test_logprobs_are_on_when_asked_for_either_way(
    logprobs: bool | None, top: int | None, expected: tuple[bool, int | None]
) -> None:
    params = read(logprobs=logprobs, top_logprobs=top).task
    assert (params.logprobs, params.top_logprobs) == expected


def test_the_older_name_of_the_length_counts_alone() -> None:
    body = ChatCompletionRequest.model_validate({"model": "m", "messages": [], "max_tokens": 4})
    assert max_tokens(body) == 4


@pytest.mark.parametrize(
    ("max_tokens", "limits", "fragment"),
    [
        (0, [4096], "must be positive"),
        (-1, [None], "must be positive"),
        (4096, [4096, 100], r"context_length_exceeded: max_tokens \(4096\)"),
    ],
)
def test_a_length_that_cannot_be_is_refused(
    max_tokens: int, limits: list[int | None], fragment: str
) -> None:
    with pytest.raises(RequestError, match=fragment) as refusal:
        check_budget(max_tokens, limits)
    assert refusal.value.code == "invalid_request"


@pytest.mark.parametrize(
    ("max_tokens", "limits"), [(None, [10]), (4095, [4096, 100]), (5000, [4096, None])]
)
def test_a_length_that_fits_somewhere_passes(
    max_tokens: int | None, limits: list[int | None]
) -> None:
    check_budget(max_tokens, limits)


FIXED = {"supports_thinking": True, "default_reasoning_effort": "low"}
TOGGLED = {**FIXED, "supports_thinking_toggle": True, "disabled_reasoning_effort": "minimal"}


@pytest.mark.parametrize(
    ("model", "effort", "enabled", "expected"),
    [
        ({}, "high", True, Thinking()),
        (FIXED, "high", False, Thinking(effort="high")),
        (FIXED, "none", None, Thinking()),
        (TOGGLED, None, None, Thinking()),
        (TOGGLED, "none", True, Thinking(enabled=False)),
        (TOGGLED, "high", False, Thinking(enabled=False)),
        (TOGGLED, None, True, Thinking("low", True)),
        (TOGGLED, "high", True, Thinking("high", True)),
        (TOGGLED, "high", None, Thinking("high", True)),
        (TOGGLED, "minimal", None, Thinking(enabled=False)),
    ],
)
def test_thinking_is_what_client_and_model_agree_on(
    model: dict[str, Any], effort: Any, enabled: bool | None, expected: Thinking
) -> None:
    abilities = ResolvedModelCapabilities.model_validate(model)
    assert resolve_thinking(abilities, effort, enabled) == expected
