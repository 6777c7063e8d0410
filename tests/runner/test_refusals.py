"""The context limit, before anything is computed."""

from __future__ import annotations

import pytest

from skulkd.runner.errors import ContextLengthExceeded
from skulkd.runner.generation.request import answer_budget


@pytest.mark.parametrize(
    ("prompt", "wanted", "limit", "budget"),
    [
        (10, None, None, 4096),
        (10, 50, None, 50),
        (10, None, 100, 90),
        (10, 90, 100, 90),
        (10, None, 100_000, 4096),
    ],
)
def test_an_answer_gets_what_is_left_of_the_context(
    prompt: int, wanted: int | None, limit: int | None, budget: int
) -> None:
    assert answer_budget(prompt, wanted, limit, 4096) == budget


@pytest.mark.parametrize(("prompt", "wanted"), [(100, None), (101, None), (10, 91), (100, 1)])
def test_a_prompt_that_does_not_fit_is_refused_with_numbers(
    prompt: int, wanted: int | None
) -> None:
    with pytest.raises(ContextLengthExceeded, match=rf"^context_length_exceeded: .*{prompt}.*100"):
        answer_budget(prompt, wanted, 100, 4096)
