"""Timelines of real deadlocks, recorded from up to three daemons with a fault in one runner.

Each is what `skulkctl timeline --check --record` saw in a situation of `tests/observe_live`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skulkctl.main import main
from skulkctl.timeline.recordings import read_frames
from skulkctl.ui.app import Setup, SkulkApp
from skulkctl.ui.feed import ReplayFeed
from skulkctl.verdict import Limits
from tests.timeline.app_rig import WIDE, screen_text, settle
from tests.timeline.test_snapshots import DATA

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


async def test_the_screens_of_real_deadlocks_name_the_culprit() -> None:
    """One application steps through the newest frame of every recording."""
    newest = [read_frames(recording(name))[-2:] for name, *_ in REAL]
    feed = ReplayFeed([frame for frames in newest for frame in frames])
    app = SkulkApp(Setup(feed, limits=IMPATIENT, mode="timeline", clock=lambda: 0.0))
    async with app.run_test(size=WIDE) as pilot:
        at = 0
        for (name, state, _, culprit), frames in zip(REAL, newest, strict=True):
            at += len(frames)
            while feed.position != f"{at} of {sum(map(len, newest))}":
                feed.step(1)
            app.action_refresh()
            await settle(app, pilot)
            shown = screen_text(app)
            assert state in shown, (name, shown)
            if culprit is not None and state == "HANG":
                assert f"\n>{culprit} " in shown, (name, shown)
