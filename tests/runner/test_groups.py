"""Several ranks answer as one does: greedy text, joins, cancels, options, prefix cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from skulkd.runner.protocol import GenerationOptions
from tests.runner.rank_group import MakeGroup
from tests.runner.runner_process import Runner

NO_END = GenerationOptions(logit_bias={"2": -100.0})


@pytest.mark.parametrize(
    ("ranks", "tensor"), [(2, False), (3, False), (2, True)], ids=["pipe2", "pipe3", "tensor2"]
)
def test_greedy_answers_are_those_of_one_rank(
    group: MakeGroup, runner: Runner, tiny: Path, ranks: int, tensor: bool
) -> None:
    several = group(ranks, tiny, tensor=tensor)
    for text in ("hello", "tell me about the sea " * 6):
        mine = several.chat(text, extra=NO_END, max_output_tokens=24)
        assert mine.text() == runner.chat(text, extra=NO_END, max_output_tokens=24).text()
    several.rest()
