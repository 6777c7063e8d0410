"""Sentences about some ranks of a group."""

from __future__ import annotations

import pytest

from skulkctl.verdict.drafts import clause
from skulkctl.verdict.ranks import groups_of
from tests.timeline.builders import NODES, rank, read, step, timeline


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [((), "No rank has"), ((0,), "Rank 0 has"), ((0, 2), "Ranks 0 and 2 have")],
)
def test_the_verb_agrees_with_the_number_of_ranks(ranks: tuple[int, ...], sentence: str) -> None:
    shown = timeline(*(rank(number, [step(1, "idle", "runner_ready")]) for number in range(3)))
    [group] = groups_of(read(shown), NODES)
    assert clause([one for one in group.ranks if one.rank in ranks], "has", "have") == sentence
