"""Keys of the timeline screens, pressed on the real application."""

from __future__ import annotations

import html
import re

import pytest
from textual.widgets import Static

from skulkctl.errors import Unreachable
from skulkctl.main import main
from skulkctl.tui.dialogs import ConfirmScreen, TextScreen
from skulkctl.tui.feed import Frame, Pacer
from skulkctl.tui.recorder_screen import RecorderScreen
from skulkctl.tui.shots import View
from skulkctl.tui.timeline_screen import TimelineScreen
from tests.timeline.app_rig import NARROW, WIDE, Deeds, frames, press, running, screen_text
from tests.timeline.builders import rank, step, timeline
from tests.timeline.situations import d1, situations


def two_placements() -> dict[str, object]:
    idle = [step(1, "idle", "runner_ready")]
    fine = timeline(rank(0, idle, status="RunnerReady", task=None, instance="aa11bb22"))
    hung = d1()
    return {**hung, "runners": fine["runners"] + hung["runners"],
            "timeline": fine["timeline"] + hung["timeline"]}  # fmt: skip


async def test_the_culprit_is_selected_and_the_verdict_read_first() -> None:
    async with running(frames(d1())) as (app, _):
        told = screen_text(app)
        assert told.splitlines()[1].startswith(" HANG D1  Rank 1 on kite2")
        assert "\n>1  kite2 prefill_pipeline" in told


async def test_five_keys_from_open_to_cancelled() -> None:
    """Open, read, C, ctrl-x, y: the evidence comes before the change."""
    deeds = Deeds()
    async with running(frames(d1()), actions=deeds) as (app, pilot):
        await press(app, pilot, "C")
        assert "captured to bundle.tar.zst" in screen_text(app)
        await press(app, pilot, "ctrl+x")
        assert isinstance(app.screen, ConfirmScreen)
        assert app.focused is not None and app.focused.id == "no"
        told = str(app.screen.query_one(Static).render())
        assert "skulkctl cancel 4be0aa11" in told
        await press(app, pilot, "y")
        assert deeds.done == ["capture 7f3c2b1a/1", "cancel 4be0aa11 on 4"]
        assert "cancel requested on all" in screen_text(app)


async def test_a_cancel_without_evidence_captures_first_and_enter_is_safe() -> None:
    deeds = Deeds()
    async with running(frames(d1()), actions=deeds) as (app, pilot):
        await press(app, pilot, "ctrl+x", "enter")
        assert deeds.done == []
        await press(app, pilot, "ctrl+x", "y")
        assert deeds.done == ["capture 7f3c2b1a/1", "cancel 4be0aa11 on 4"]


async def test_without_evidence_nothing_is_cancelled() -> None:
    deeds = Deeds(broken=True)
    async with running(frames(d1()), actions=deeds) as (app, pilot):
        await press(app, pilot, "ctrl+x", "y")
        assert deeds.done == []
        assert "the disk is full" in screen_text(app)


async def test_read_only_has_no_key_that_changes_anything() -> None:
    deeds = Deeds()
    async with running(frames(d1()), actions=deeds, view=View(read_only=True)) as (app, pilot):
        assert "^x" not in screen_text(app)
        await press(app, pilot, "ctrl+x")
        assert isinstance(app.screen, TimelineScreen)
        assert not any("skulkctl cancel" in words for words, _, _ in app.palette_entries())


async def test_moving_through_ranks_and_into_the_recorder() -> None:
    async with running(frames(d1()), WIDE) as (app, pilot):
        await press(app, pilot, "j")
        assert "\n>2 " in screen_text(app)
        await press(app, pilot, "g", "enter")
        assert isinstance(app.screen, RecorderScreen)
        assert "rank 0 @ kite1 > recorder" in screen_text(app)
        await press(app, pilot, "right_square_bracket")
        told = screen_text(app)
        assert "rank 1 @ kite2 > recorder" in told
        assert "r0 sent" in told and "r2 waits data" in told
        await press(app, pilot, "m", "a")
        assert "r2 waits data" not in screen_text(app)
        assert "prefill=true" not in screen_text(app)
        await press(app, pilot, "escape")
        assert isinstance(app.screen, TimelineScreen)


async def test_a_filter_says_what_it_hides_and_escape_clears_it() -> None:
    async with running(frames(d1())) as (app, pilot):
        await press(app, pilot, "slash", *"node:kite3", "enter")
        told = screen_text(app)
        assert "kite3" in told and "\n 0  kite1" not in told
        assert "/node:kite3  3 of 4 ranks hidden" in told
        await press(app, pilot, "escape")
        assert "hidden" not in screen_text(app)


async def test_filtering_the_recorder() -> None:
    async with running(frames(d1()), WIDE) as (app, pilot):
        await press(app, pilot, "enter", "slash", *"/eval_(recv|output)/", "enter")
        told = screen_text(app)
        assert "(3 of 7)" in told
        assert "prompt_tokenized" not in told


async def test_pause_freezes_the_data_and_says_so() -> None:
    async with running(frames(d1())) as (app, pilot):
        await press(app, pilot, "p")
        assert app.view.paused_at == "14:07:32Z"
        await press(app, pilot, "p")
        assert app.view.paused_at == ""


async def test_zoom_and_pan() -> None:
    async with running(frames(d1())) as (app, pilot):
        await press(app, pilot, "minus")
        assert app.view.span_s == 120.0
        await press(app, pilot, "left")
        assert app.view.pan_s == 30.0
        assert "14:07:02" in screen_text(app)
        await press(app, pilot, "escape", "plus", "plus")
        assert (app.view.pan_s, app.view.span_s) == (0.0, 30.0)


async def test_the_next_difference_is_where_ranks_part() -> None:
    async with running(frames(d1())) as (app, pilot):
        await press(app, pilot, "n")
        assert "differ from" in screen_text(app)


async def test_placements_are_chosen_by_number_and_problems_alone() -> None:
    async with running(frames(two_placements()), WIDE) as (app, pilot):
        assert "(1 of 2, 1 problem)" in screen_text(app)
        await press(app, pilot, "2")
        assert "aa11bb22" in screen_text(app)
        await press(app, pilot, "tab")
        assert "7f3c2b1a" in screen_text(app)
        await press(app, pilot, "2", "exclamation_mark")
        assert "7f3c2b1a" in screen_text(app)


async def test_copy_raw_help_and_logs() -> None:
    async with running(frames(d1()), actions=Deeds()) as (app, pilot):
        await press(app, pilot, "c")
        assert app.clipboard.startswith("HANG D1\nRank 1 on kite2")
        assert "skulkctl capture 7f3c2b1a/1" in app.clipboard
        for key, words in (
            ("y", '"deviceRank": 1'),
            ("l", "line of rank 1"),
            ("question_mark", "^x"),
        ):
            await press(app, pilot, key)
            assert isinstance(app.screen, TextScreen)
            assert words in str(app.screen.query_one(Static).render())
            await press(app, pilot, "escape")


@pytest.mark.parametrize("rule", ["D1", "D14", "D18", "D24"])
async def test_the_palette_is_spelled_like_the_command_line(
    rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = next(one for one in situations() if one.rule == rule).timeline
    async with running(frames(shown), actions=Deeds()) as (app, _):
        words = [words for words, _, _ in app.palette_entries()]
    program, verbs = {one.split()[0] for one in words}, [one.split()[1] for one in words]
    assert program == {"skulkctl"}
    assert len(words) == len(set(words))
    for verb in verbs:
        assert main([verb, "--help"]) == 0, verb
    capsys.readouterr()


@pytest.mark.parametrize("key", ["question_mark", "colon", "ctrl+x", "y", "enter", "slash"])
async def test_plain_letters_are_enough_for_every_window(key: str) -> None:
    async with running(frames(d1()), NARROW, Deeds(), View(ascii=True)) as (app, pilot):
        await press(app, pilot, key)
        picture = app.export_screenshot()
    told = html.unescape("".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture)))
    assert told.replace("\xa0", " ").isascii(), sorted(set(told))


async def test_a_recording_offers_no_keys_that_need_a_daemon() -> None:
    async with running(frames(d1()), WIDE) as (app, _):
        told = screen_text(app)
    assert "C capture" not in told
    assert "^x" not in told
    assert "skulkctl capture 7f3c2b1a/1" in told


async def test_the_palette_copies_what_no_key_does() -> None:
    wedged = next(one for one in situations() if one.rule == "D14").timeline
    async with running(frames(wedged), actions=Deeds()) as (app, pilot):
        run = next(run for words, _, run in app.palette_entries() if "delete" in words)
        run()
        await press(app, pilot)
        assert app.clipboard == "skulkctl delete 7f3c2b1a"
        assert "in the clipboard: skulkctl delete 7f3c2b1a" in screen_text(app)


async def test_stepping_through_a_recording() -> None:
    moving = timeline(rank(0, [step(1, "decode_stream", "first_token")]))
    async with running(frames(moving, d1())) as (app, pilot):
        assert "REPLAY 1 of 2" in screen_text(app)
        await press(app, pilot, "full_stop")
        assert "REPLAY 2 of 2" in screen_text(app)
        await press(app, pilot, "comma")
        assert "REPLAY 1 of 2" in screen_text(app)


async def test_a_tiny_terminal_shows_the_verdict_and_nothing_else() -> None:
    async with running(frames(d1()), (50, 12)) as (app, pilot):
        told = screen_text(app)
        assert "HANG D1" in told and "kite4" not in told
        await pilot.resize_terminal(*NARROW)
        await press(app, pilot, "r")
        assert "kite4" in screen_text(app)


class Flaky:
    """A daemon that answers once and then no more."""

    live = True

    def __init__(self) -> None:
        self.asked = 0

    def poll(self) -> Frame:
        self.asked += 1
        if self.asked > 1:
            raise Unreachable("no daemon reachable", "connection refused")
        return frames(d1())[0]


async def test_a_lost_daemon_leaves_the_last_data_and_says_why() -> None:
    async with running(Flaky()) as (app, pilot):
        await press(app, pilot, "r")
        told = screen_text(app)
        assert "NO ANSWER" in told
        assert "connection refused; next try in 30s" in told
        assert "HANG D1" in told


def test_the_pace_of_questions() -> None:
    pacer = Pacer(2.0)
    assert [pacer.failed() for _ in range(5)] == [4.0, 8.0, 16.0, 30.0, 30.0]
    assert pacer.answered(0.1) == 2.0
    assert [pacer.answered(1.5) for _ in range(4)] == [2.0, 2.0, 5.0, 5.0]
    assert pacer.answered(0.2) == 2.0
