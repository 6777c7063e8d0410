"""What the last stage draws reaches the row it was drawn for, however lanes empty and fill.

Rank 0 hears of all lanes over one line, so it must listen in the order in which they were sent.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from skulkd.runner.protocol import GenerationOptions, Output
from tests.runner.rank_group import MakeGroup, RankGroupOfRunners
from tests.runner.runner_process import Runner

WORDS = ("fox", "tea", "map", "rain", "moss", "salt")
NO_END = GenerationOptions(logit_bias={"2": -100.0})


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_answers_that_end_together_end_with_their_own_words(
    group: MakeGroup, runner: Runner, tiny: Path, stages: int
) -> None:
    """One lane empties a turn before the others and is given a row of the fullest."""
    several = group(stages, tiny)
    # Of different lengths: what ends in different words shows whose they are.
    texts = [f"{word} " * (3 + 11 * at) for at, word in enumerate(WORDS)]
    alone = [runner.chat(text, extra=NO_END, max_output_tokens=23).text() for text in texts]
    for count in range(2, len(texts) + 1):
        tasks = [several.ask(text, NO_END, max_output_tokens=23) for text in texts[:count]]
        assert [several.answer(task).text() for task in tasks] == alone[:count]


@pytest.mark.parametrize("leaves", [0, 1])
def test_who_leaves_takes_no_words_of_others_along(
    pair: RankGroupOfRunners, runner: Runner, leaves: int
) -> None:
    """A lane that empties takes what was sent for it, after what was sent before."""
    alone = runner.chat("who stays", extra=NO_END, max_output_tokens=60).text()
    for _ in range(15):
        texts = ["who leaves", "who stays"] if leaves == 0 else ["who stays", "who leaves"]
        tasks = [pair.ask(text, NO_END, max_output_tokens=60) for text in texts]
        pair.leader.until(Output, lambda m, task=tasks[leaves]: m.task_id == task)
        pair.cancel(tasks[leaves])
        assert pair.answer(tasks[1 - leaves]).text() == alone
        assert pair.answer(tasks[leaves]).status.status in ("Cancelled", "Complete")
