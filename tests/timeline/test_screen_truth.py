"""One screen says one thing: limits, lanes and verdict are drawn from the same facts."""

from __future__ import annotations

import pytest

from skulkctl.ui.lanes import Window, lane_of, marks_of
from skulkctl.ui.snapshot import Snapshot, View
from skulkctl.ui.timeline_page import timeline_page
from skulkctl.verdict.waits import Wait
from tests.timeline.builders import NODES, enter, limits, pulse, rank, read, timeline
from tests.timeline.situations import Situation, decoding, situations

OURS = limits(progressSeconds=75.0)
IDS = [f"{one.rule}-{one.state}" for one in situations()]


def text_of(snapshot: Snapshot) -> str:
    page = timeline_page(snapshot, View(), 160)
    return "\n".join(one.plain for one in page)


@pytest.mark.parametrize("given", [None, OURS], ids=["stock", "ours"])
@pytest.mark.parametrize("situation", situations(), ids=IDS)
def test_no_limit_is_named_where_none_is_known(
    situation: Situation, given: dict[str, float] | None
) -> None:
    snapshot = Snapshot(read({**situation.timeline, "limits": given}), names=NODES)
    screen = text_of(snapshot)
    assert not ("No known timeout ends this" in screen and "limit is" in screen), screen


def test_the_limit_of_a_rank_is_the_moment_that_the_verdict_says() -> None:
    alone = rank(0, [enter(45, "vision_preprocess", "prepare_vision")])
    snapshot = Snapshot(read(timeline(alone, limits=OURS)), names=NODES)
    assert snapshot.verdict.worst.deadlines[0].in_s == pytest.approx(15.0)
    assert "its 60 s eval limit is 14:07:47Z" in text_of(snapshot)


@pytest.mark.parametrize("situation", situations(), ids=IDS)
def test_a_rank_inside_a_step_is_never_drawn_as_being_after_one(situation: Situation) -> None:
    snapshot = Snapshot(read(situation.timeline), names=NODES)
    window = Window(snapshot.now_s - 60.0, snapshot.now_s, 60)
    for group in snapshot.groups:
        for one in group.ranks:
            lane = lane_of(one, marks_of(one, {}), window, snapshot.now_s)
            if one.event == "enter":
                assert lane.cells[-1] != Wait.AFTER.value, one.evidence()


@pytest.mark.parametrize(
    ("entry", "live"),
    [
        pytest.param(enter(20, "decode_stream", "pipeline_step"), None, id="by-its-entry"),
        pytest.param(
            enter(20, "decode_stream", "pipeline_last_eval_output"),
            pulse(15, "pipeline_step"),
            id="by-its-pulse",
        ),
    ],
)
def test_a_step_of_the_pipeline_has_a_sign_of_its_own(entry: object, live: object) -> None:
    both = timeline(*(rank(n, [*decoding(41, 2), entry], live=live) for n in range(2)))  # type: ignore[list-item, arg-type]
    snapshot = Snapshot(read(both), names=NODES)
    (group,) = snapshot.groups
    window = Window(snapshot.now_s - 60.0, snapshot.now_s, 60)
    cells = lane_of(group.ranks[0], marks_of(group.ranks[0], {}), window, snapshot.now_s).cells
    assert cells.endswith("%%%%%")


def test_a_wait_is_the_headline_and_not_a_silence() -> None:
    waits = next(one for one in situations() if one.rule == "FILES" and one.why == "a long copy")
    screen = text_of(Snapshot(read(waits.timeline), names=NODES))
    assert "WAITING  for files, 15m" in screen
    assert "no rank has moved" not in screen
    assert "No known timeout" not in screen
