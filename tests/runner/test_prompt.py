"""Messages as templates want them."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import TemplateError

from skulkd.runner.errors import BadRequest
from skulkd.runner.prompts.prompt import messages_of, render_prompt, template_switches, wanted_tools
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.ids import ModelId
from skulkd.wire.tasks import InputMessage, TextGenerationTaskParams

HELLO = [InputMessage(role="user", content="hello")]


def params(**values: Any) -> TextGenerationTaskParams:
    return TextGenerationTaskParams(model=ModelId("m"), **{"input": HELLO, **values})


def test_instructions_become_the_system_message() -> None:
    assert messages_of(params(instructions="be brief")) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
    ]


def test_tool_calls_of_earlier_turns_reach_the_template_as_objects() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    (message,) = messages_of(params(chat_template_messages=[said]))
    assert message["content"] == ""
    assert message["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert call["function"] == {"name": "f", "arguments": '{"x": 1}'}


@pytest.mark.parametrize(
    ("given", "switches"),
    [
        ({}, {}),
        ({"enable_thinking": False}, {"enable_thinking": False}),
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        ({"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        (
            {"enable_thinking": True, "reasoning_effort": "low"},
            {"enable_thinking": True, "reasoning_effort": "low"},
        ),
    ],
)
def test_thinking_is_switched_in_the_template(
    given: dict[str, Any], switches: dict[str, Any]
) -> None:
    assert template_switches(params(**given)) == switches


def test_no_tools_are_shown_to_the_model_when_none_may_be_called() -> None:
    asked = params(tools=[{"type": "function"}])
    assert wanted_tools(asked, GenerationOptions()) == [{"type": "function"}]
    assert wanted_tools(asked, GenerationOptions(tool_choice="none")) == []


class Tokenizer:
    """A template that refuses, as templates do when roles do not alternate."""

    has_chat_template = True

    def apply_chat_template(self, messages: list[dict[str, Any]], **_: Any) -> str:
        raise TemplateError("roles must alternate")


def test_a_template_that_refuses_is_the_request_s_fault() -> None:
    with pytest.raises(BadRequest, match="roles must alternate"):
        render_prompt(Tokenizer(), params(), GenerationOptions())


def test_raw_text_needs_no_template() -> None:
    assert render_prompt(Tokenizer(), params(), GenerationOptions(prompt="Once")) == "Once"


def test_no_messages_is_nothing_to_generate_from() -> None:
    with pytest.raises(BadRequest, match="no messages"):
        render_prompt(Tokenizer(), params(input=[]), GenerationOptions())


def test_a_model_without_template_gets_a_plain_dialogue() -> None:
    tokenizer = Tokenizer()
    tokenizer.has_chat_template = False
    assert render_prompt(tokenizer, params(), GenerationOptions()) == "user: hello\nassistant:"
