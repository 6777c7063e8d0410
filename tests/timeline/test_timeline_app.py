"""Keys and mouse on the timeline page, in the real application."""

from __future__ import annotations

import pytest
from textual.widgets import Static

from skulkctl.errors import Unreachable
from skulkctl.main import main
from skulkctl.timeline.frames import EVERYTHING, Frame, Part
from skulkctl.ui.dialogs import ConfirmScreen, TextScreen
from skulkctl.ui.feed import Pacer
from skulkctl.ui.palette import entries
from skulkctl.ui.snapshot import View
from skulkctl.ui.timeline_screen import Lanes, TimelineScreen
from skulkctl.ui.widgets import Rows
from tests.timeline.app_rig import (
    NARROW,
    WIDE,
    Deeds,
    StillFeed,
    frames,
    notices,
    press,
    running,
    screen_text,
    settle,
)
from tests.timeline.builders import rank, step, timeline
from tests.timeline.clusters import a_cluster
from tests.timeline.situations import d1, situations


def two_placements() -> dict[str, object]:
    idle = [step(1, "idle", "runner_ready")]
    fine = timeline(rank(0, idle, status="RunnerReady", task=None, instance="aa11bb22"))
    hung = d1()
    return {**hung, "runners": fine["runners"] + hung["runners"],
            "timeline": fine["timeline"] + hung["timeline"]}  # fmt: skip


async def test_five_keys_from_open_to_cancelled() -> None:
    """Open, read, c, x, y: the evidence comes before the change, and the culprit is selected."""
    deeds = Deeds()
    async with running(frames(d1()), actions=deeds) as (app, pilot):
        shown = screen_text(app)
        assert shown.splitlines()[1].startswith(" ✖ HANG D1  Rank 1 on kite2")
        assert "\n>1   kite2" in shown
        await press(app, pilot, "c")
        assert "captured: bundle.tar.zst" in notices(app)
        await press(app, pilot, "x")
        assert isinstance(app.screen, ConfirmScreen)
        assert app.focused is not None and app.focused.id == "no"
        assert "skulkctl cancel 4be0aa11" in str(app.screen.query_one(Static).render())
        await press(app, pilot, "y")
        assert deeds.done == ["capture 7f3c2b1a/1", "cancel 4be0aa11 on 4"]
        await press(app, pilot, "r", "y")
        assert deeds.done[2:] == ["restart 7f3c2b1a"]


async def test_nothing_is_changed_without_evidence_and_enter_is_safe() -> None:
    deeds = Deeds()
    async with running(frames(d1()), actions=deeds) as (app, pilot):
        await press(app, pilot, "x", "enter")
        assert deeds.done == []
        deeds.broken = True
        await press(app, pilot, "x", "y")
        assert deeds.done == []
        assert "the disk is full" in notices(app)
        deeds.broken = False
        await press(app, pilot, "x", "y")
        assert deeds.done == ["capture 7f3c2b1a/1", "cancel 4be0aa11 on 4"]


async def test_read_only_has_no_key_that_changes_anything() -> None:
    deeds = Deeds()
    async with running(frames(d1()), actions=deeds, view=View(read_only=True)) as (app, pilot):
        assert "x cancel" not in screen_text(app)
        assert "read-only" in screen_text(app)
        await press(app, pilot, "x", "r")
        assert isinstance(app.screen, TimelineScreen)
        assert not any("skulkctl cancel" in words for words, _, _ in entries(app))


async def test_ranks_recorder_and_filters() -> None:
    async with running(frames(d1()), WIDE) as (app, pilot):
        await press(app, pilot, "j")
        assert "\n>2 " in screen_text(app)
        assert "rank 2 on kite3" in screen_text(app)
        await press(app, pilot, "k", "slash", *"node:kite3", "enter")
        shown = screen_text(app)
        assert "/node:kite3  3 of 4 ranks hidden" in shown and "\n 0   kite1" not in shown
        await press(app, pilot, "escape")
        assert "hidden" not in screen_text(app)
        await press(app, pilot, "enter")
        shown = screen_text(app)
        assert "HANG" not in shown, "the recorder has the whole page"
        assert "r0 sent" in shown and "nothing since" in shown
        await press(app, pilot, "slash", *"/eval_(recv|output)/", "enter")
        assert "recorder 3 of 7" in screen_text(app)
        await press(app, pilot, "escape", "escape")
        assert "HANG" in screen_text(app)


async def test_the_crosshair_reads_every_rank_and_the_recorder_follows_it() -> None:
    async with running(frames(d1()), WIDE) as (app, pilot):
        table = app.screen.query_one(Rows)
        await press(app, pilot, "n")
        assert "differ from" in notices(app)
        found = app.view.cross_s
        before = float((table.selected_key or "0 0").split()[1])
        assert found is not None and before <= found + 0.001
        await press(app, pilot, "left")
        assert app.view.cross_s is not None and found is not None and app.view.cross_s < found
        shown = screen_text(app)
        assert shown.count("┊") == 4, "one line for each rank"
        table.focus()
        await press(app, pilot, "down")
        assert app.view.cross_s == float((table.selected_key or "0 0").split()[1]) >= before
        await press(app, pilot, "f")
        assert (app.view.cross_s, app.view.pan_s) == (None, 0.0)


async def test_zoom_and_pan_by_keys_and_mouse() -> None:
    async with running(frames(d1()), WIDE) as (app, pilot):
        lanes = app.screen.query_one(Lanes)
        await press(app, pilot, "minus", "shift+left")
        assert (app.view.span_s, app.view.pan_s) == (120.0, 30.0)
        assert " now " not in screen_text(app)
        await press(app, pilot, "shift+right", "plus", "plus")
        assert (app.view.pan_s, app.view.span_s) == (0.0, 30.0)
        assert lanes.chart is not None
        left = lanes.chart.layout.left
        await pilot.click(Lanes, offset=(left + 10, 3))
        await settle(app, pilot)
        assert app.view.cross_s is not None and app.view.runner == "runner-7f3c2b1a-0"
        await pilot._post_mouse_events([_wheel()], Lanes, (left, 3))
        await settle(app, pilot)
        assert app.view.span_s == 60.0


def _wheel() -> type:
    from textual import events

    return events.MouseScrollDown


async def test_instances_problems_and_what_can_be_read() -> None:
    feed = StillFeed(a_cluster(), two_placements())
    async with running(feed, WIDE, Deeds()) as (app, pilot):
        assert "(1 of 2, 1 problem)" in screen_text(app)
        await press(app, pilot, "tab")
        assert "aa11bb22" in screen_text(app)
        await press(app, pilot, "exclamation_mark")
        assert "7f3c2b1a" in screen_text(app)
        await press(app, pilot, "y")
        assert app.clipboard.startswith("HANG D1\nRank 1 on kite2")
        assert "skulkctl capture 7f3c2b1a/1" in app.clipboard
        for key, words in (("v", '"deviceRank": 1'), ("l", "line of rank 1"), ("L", "own work")):
            await press(app, pilot, key)
            assert isinstance(app.screen, TextScreen)
            assert words in str(app.screen.query_one(Static).render())
            await press(app, pilot, "G", "g", "escape")
        await press(app, pilot, "space")
        assert app.view.paused_at == "14:07:32Z" and "PAUSED" in screen_text(app)
        await press(app, pilot, "space", "o")
        assert not app.view.paused_at and app.view.only_task
        await press(app, pilot, "question_mark")
        assert "next difference" in screen_text(app) and app.screen.query("HelpPanel")
        for _ in range(200):  # the page is drawn anew once it knows its width
            if "»" not in screen_text(app).splitlines()[2]:
                break
            await pilot.pause(0.05)
        assert "»" not in screen_text(app).splitlines()[2], "the page gets narrower, not cut"


@pytest.mark.parametrize("rule", ["D1", "D14", "D18", "D24"])
async def test_the_palette_is_spelled_like_the_command_line(
    rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = next(one for one in situations() if one.rule == rule).timeline
    async with running(frames(shown), actions=Deeds()) as (app, pilot):
        found = list(entries(app))
        copied = [run for words, _, run in found if "delete" in words]
        if copied:
            copied[0]()
            await press(app, pilot)
            assert app.clipboard == "skulkctl delete 7f3c2b1a"
    words = [words for words, _, _ in found]
    assert {one.split()[0] for one in words} == {"skulkctl"}
    assert len(words) == len(set(words))
    for verb in {one.split()[1] for one in words}:
        assert main([verb, "--help"]) == 0, verb
    capsys.readouterr()


async def test_a_recording_is_stepped_through_and_offers_no_keys_for_a_daemon() -> None:
    moving = timeline(rank(0, [step(1, "decode_stream", "first_token")]))
    async with running(frames(moving, d1()), WIDE) as (app, pilot):
        assert "REPLAY 1 of 2" in screen_text(app)
        await press(app, pilot, "full_stop")
        shown = screen_text(app)
        assert "REPLAY 2 of 2" in shown
        assert "c capture" not in shown and "x cancel" not in shown
        assert "skulkctl capture 7f3c2b1a/1" in shown
        assert "1 Cluster" not in shown, "a recording has one page"
        await press(app, pilot, "comma", "1")
        assert "REPLAY 1 of 2" in screen_text(app)


async def test_a_tiny_terminal_still_tells_the_verdict() -> None:
    async with running(frames(d1()), (30, 8)) as (app, pilot):
        assert "HANG D1" in screen_text(app)
        await pilot.resize_terminal(*NARROW)
        await press(app, pilot)
        assert "kite4" in screen_text(app)


class Flaky:
    """A daemon that answers once and then no more."""

    live = True

    def __init__(self) -> None:
        self.wanted: list[frozenset[Part]] = []
        self.closed = False

    async def poll(self, wanted: frozenset[Part] = EVERYTHING) -> Frame:
        self.wanted.append(wanted)
        if len(self.wanted) != 2:
            raise Unreachable("no daemon reachable", "connection refused")
        return frames(d1())[0]

    async def close(self) -> None:
        self.closed = True


async def test_a_lost_daemon_leaves_the_last_data_and_says_why() -> None:
    feed = Flaky()
    async with running(feed) as (app, pilot):
        assert "✖ no answer: connection refused; next try in 30s" in screen_text(app)
        await press(app, pilot, "ctrl+r")
        assert "connection refused" not in screen_text(app)
        await press(app, pilot, "ctrl+r")
        shown = screen_text(app)
        assert "NO ANSWER" in shown and "connection refused; next try in 30s" in shown
        assert "HANG D1" in shown
    assert feed.closed
    assert set(feed.wanted) == {frozenset({Part.TIMELINE})}, "only what the page shows"


def test_the_pace_of_questions() -> None:
    pacer = Pacer(2.0)
    assert [pacer.failed() for _ in range(5)] == [4.0, 8.0, 16.0, 30.0, 30.0]
    assert pacer.answered(0.1) == 2.0
    assert [pacer.answered(1.5) for _ in range(4)] == [2.0, 2.0, 5.0, 5.0]
    assert pacer.answered(0.2) == 2.0
