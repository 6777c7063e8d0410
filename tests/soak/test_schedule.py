"""The schedule of a chaos run: repeatable, complete, and it leaves one process alone."""

from __future__ import annotations

from itertools import islice

from tests.soak.faults import Faults
from tests.soak.schedule import CUTS, LONGEST_S, SPARES_THE_WITNESS, acts

KINDS = [*LONGEST_S, *CUTS]


def test_a_seed_gives_the_same_acts_again() -> None:
    first, again, other = (list(islice(acts(seed, 4, KINDS), 50)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_every_kind_comes_once_in_each_turn_and_can_be_carried_out() -> None:
    turns = list(islice(acts(3, 4, KINDS), 2 * len(KINDS)))
    for turn in (turns[: len(KINDS)], turns[len(KINDS) :]):
        assert sorted(act.kind for act in turn) == sorted(KINDS)
    assert all(callable(getattr(Faults, kind)) for kind in KINDS)


def test_the_first_node_is_never_ended_and_pauses_are_within_their_limits() -> None:
    for act in islice(acts(5, 3, KINDS, longest=0.5), 500):
        assert act.kind not in SPARES_THE_WITNESS or 0 not in act.nodes
        assert 0 <= act.pause_s <= (LONGEST_S | CUTS)[act.kind] * 0.5
