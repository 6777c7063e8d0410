"""Python's garbage collector is kept away from keys."""

from __future__ import annotations

import gc

import pytest

from skulkctl.ui.garbage import EVERY_S, LATEST_S, QUIET_S, QuietCollector


@pytest.mark.parametrize(
    ("used_s", "now_s", "collects"),
    [
        pytest.param(0.0, EVERY_S - 1, False, id="not yet"),
        pytest.param(EVERY_S - 1, EVERY_S, False, id="a key was just pressed"),
        pytest.param(EVERY_S - QUIET_S, EVERY_S, True, id="quiet"),
        pytest.param(LATEST_S, LATEST_S, True, id="never quiet"),
    ],
)
def test_it_collects_while_the_keyboard_is_idle(
    used_s: float, now_s: float, collects: bool
) -> None:
    collector = QuietCollector(0.0)
    collector.used(used_s)
    assert collector.collect(now_s) is collects
    assert not collector.collect(now_s), "not twice in a row"


def test_the_usual_thresholds_come_back() -> None:
    usual = gc.get_threshold()
    collector = QuietCollector(0.0)
    collector.start()
    assert gc.get_threshold()[2] > usual[2]
    collector.stop()
    assert gc.get_threshold() == usual
