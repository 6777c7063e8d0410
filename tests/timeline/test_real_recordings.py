"""Timelines of real deadlocks, recorded from up to three daemons with a fault in one runner.

Each is what `skulkctl timeline --check --record` saw in a situation of `tests/observe_live`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skulkctl.main import main
from skulkctl.recordings import read_frames
from skulkctl.tui.feed import ReplayFeed
from skulkctl.tui.shots import View
from skulkctl.tui.timeline_app import Setup, TimelineApp
from skulkctl.verdict import Limits
from tests.timeline.app_rig import NARROW, WIDE, settle
from tests.timeline.builders import NOW
from tests.timeline.test_snapshots import DATA, compare, pinned

__all__ = ["pinned"]

REAL = [
    ("stall_before_barrier", "HANG", "D4", 1),
    ("stall_in_barrier", "HANG", "D2", 1),
    ("skip_collective", "HANG", "D5", 1),
    ("drop_task", "HANG", "D7", 2),
    ("not_taken", "HANG", "D21", 0),
    ("stall_step", "HANG", "D1", 1),
    ("stall_tensor", "HANG", "D26", 1),
    ("wedge_warmup", "HANG", "D14", 1),
    ("stall_connect", "HANG", "D15", 1),
    ("delay", "OK", None, None),
    ("ignore_cancel", "WAITING", "D19", 0),
    ("sigstop", "RECOVERED", "ERROR", 1),
    ("network_cut", "NODE GONE", "D24", 2),
]
IMPATIENT = Limits(hang_s=2.0, waiting_s=2.0, straggler_s=4.0)


def test_every_recording_is_looked_at() -> None:
    assert {one[0] for one in REAL} == {
        path.stem.removeprefix("real-") for path in DATA.glob("real-*.jsonl")
    }


def recording(name: str) -> Path:
    return DATA / f"real-{name}.jsonl"


@pytest.mark.parametrize(("name", "state", "rule", "culprit"), REAL, ids=[one[0] for one in REAL])
def test_the_verdict_on_a_real_deadlock(
    name: str, state: str, rule: str | None, culprit: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["timeline", "--from", str(recording(name)), "--check", "--hang-after", "2s", "-o", "json"]
    )
    found = json.loads(capsys.readouterr().out)["verdict"]["findings"][0]
    assert (found["state"], found["rule"]) == (state, rule)
    assert (None if found["culprit"] is None else found["culprit"]["rank"]) == culprit
    assert code == (0 if state in ("OK", "WAITING", "RECOVERED") else 7)


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("name", [one[0] for one in REAL])
async def test_the_screen_of_a_real_deadlock(name: str, size: tuple[int, int]) -> None:
    feed = ReplayFeed(read_frames(recording(name)))
    feed.step(feed.count)
    setup = Setup(feed, None, None, "lab", View(), IMPATIENT, now=lambda: NOW, clock=lambda: 0.0)
    app = TimelineApp(setup)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        picture = app.export_screenshot()
    compare(f"real-{name}-{'narrow' if size == NARROW else 'wide'}", picture)
