"""Models whose template opens the reasoning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skulkd.runner.protocol import GenerationOptions
from tests.runner.runner_process import ForkServer, Runner

NO_END = GenerationOptions(logit_bias={"2": -100.0})


@pytest.fixture(scope="module")
def thinker(forks: ForkServer, thinking_model: Path) -> Iterator[Runner]:
    runner = forks.fork()
    runner.configure(thinking_model)
    runner.become_ready()
    yield runner
    forks.end(runner)


def test_an_opened_thought_is_reasoning_until_it_is_closed(thinker: Runner) -> None:
    answer = thinker.chat("why?", extra=NO_END, enable_thinking=True, max_output_tokens=20)
    assert answer.reasoning()
    assert answer.text() == ""
    assert answer.usage.completion_tokens_details.reasoning_tokens == 20


@pytest.mark.parametrize(
    "switch", [{"enable_thinking": False}, {"reasoning_effort": "none"}], ids=["off", "no effort"]
)
def test_without_thinking_everything_is_answer(thinker: Runner, switch: dict[str, object]) -> None:
    answer = thinker.chat("why?", extra=NO_END, max_output_tokens=20, **switch)
    assert answer.text()
    assert answer.reasoning() == ""
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


def test_a_grammar_waits_until_the_thought_is_closed(thinker: Runner) -> None:
    extra = GenerationOptions(response_format={"type": "json_object"}, logit_bias={"2": -100.0})
    thought = thinker.chat("why?", extra=extra, enable_thinking=True, max_output_tokens=10)
    assert not thought.reasoning().startswith("{")
    bound = thinker.chat("why?", extra=extra, enable_thinking=False, max_output_tokens=10)
    assert bound.text().startswith("{")
