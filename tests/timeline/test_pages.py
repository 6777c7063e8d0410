"""Keys of the other pages, pressed on the real application: each has its deed or its answer."""

from __future__ import annotations

import pytest
from textual.binding import Binding
from textual.widgets import DataTable, Input, OptionList

from skulkctl.timeline.frames import EVERYTHING, ClusterWatch, Part
from skulkctl.ui.dialogs import ChoiceScreen, ConfirmScreen
from skulkctl.ui.place_form import PlaceScreen
from skulkctl.ui.snapshot import View
from skulkd.wire.placement import PlacementPreviewResponse
from skulkd.wire.storage import PurgeResult
from tests.timeline.app_rig import (
    WIDE,
    Answers,
    Deeds,
    StillFeed,
    notices,
    press,
    running,
    screen_text,
)
from tests.timeline.builders import INSTANCE, MODEL, TASK, timeline
from tests.timeline.clusters import (
    a_cluster,
    happened,
    instance,
    logged,
    many_copies,
    statuses,
    trace,
    traces,
)
from tests.timeline.situations import d1

LOST = [{"name": "kite4", "nodeId": "node-3", "since": "2026-05-04T14:04:12Z",
         "sinceSeconds": 200.0}]  # fmt: skip


def placed() -> StillFeed:
    return StillFeed(a_cluster(4, instances=instance(), runners=statuses(4)), d1())


def answers() -> Answers:
    return Answers(
        kept=many_copies(5), found=traces(), spans={TASK: trace()}, happened=happened(),
        logged=logged(), plans=PlacementPreviewResponse.model_validate({"previews": [refused()]}),
    )  # fmt: skip


def refused() -> dict[str, object]:
    return {"model_id": "org/big-model", "sharding": "Pipeline", "instance_meta": "MlxRing",
            "instance": None,
            "error": "kite2 needs 71.4 GiB and has 58.9 GiB"}  # fmt: skip


async def test_cluster_keys_lead_to_logs_drains_and_the_timeline() -> None:
    deeds = Deeds()
    async with running(placed(), WIDE, deeds, mode="cluster", reader=answers()) as (app, pilot):
        shown = screen_text(app)
        for words in ("♛ kite1", "models", "free", "°C", "disk", "thunderbolt 0.2 ms", "4 active"):
            assert words in shown, words
        await press(app, pilot, "down", "d")
        assert isinstance(app.screen, ConfirmScreen)
        await press(app, pilot, "y")
        assert deeds.done == ["drain node-1"]
        await press(app, pilot, "enter")
        assert "log of kite2" in screen_text(app)
        await press(app, pilot, "1", "t")
        assert app.current_mode == "timeline"


async def test_instances_are_placed_swapped_drained_and_deleted() -> None:
    deeds = Deeds()
    async with running(placed(), WIDE, deeds, mode="instances", reader=answers()) as (app, pilot):
        assert "48 layers" in screen_text(app)
        await press(app, pilot, "x")
        assert "It hangs, and is captured first." in screen_text(app)
        await press(app, pilot, "y")
        assert deeds.done == ["capture 7f3c2b1a/0,1,2,3", f"delete {INSTANCE}"]
        await press(app, pilot, "d")
        assert isinstance(app.screen, ChoiceScreen)
        app.screen.query_one(OptionList).highlighted = 2
        await press(app, pilot, "enter", "y")
        assert deeds.done[2:] == ["drain node-2"]
        await press(app, pilot, "p")
        assert isinstance(app.screen, PlaceScreen)
        app.screen.query_one("#model", Input).value = "org/big-model"
        await app.screen._preview()
        await press(app, pilot)
        assert "kite2 needs 71.4 GiB and has 58.9 GiB" in screen_text(app)
        await press(app, pilot, "ctrl+s")
        assert deeds.done[3:] == ["place org/big-model Pipeline 1"]
        await press(app, pilot, "v", "escape", "s")
        app.screen.query_one("#model", Input).value = "org/small-model"
        await press(app, pilot, "ctrl+s")
        assert f"skulkctl swap {INSTANCE[:8]} org/small-model" in screen_text(app)
        await press(app, pilot, "escape", "enter")
        assert app.current_mode == "timeline" and app.view.instance == INSTANCE
    assert deeds.done[4:] == [], "what was not confirmed is not done"


async def test_a_purge_shows_a_dry_run_first() -> None:
    node = {"nodeId": "node-0", "name": "kite1", "ok": True, "freedBytes": 1 << 30, "purged": [
        {"modelId": "org/model-004-instruct-4bit", "sizeBytes": 1 << 30}]}  # fmt: skip
    result = {"commandId": "c", "message": "done", "nodes": [node]}
    planned, done = (
        PurgeResult.model_validate({**result, "dryRun": dry_run}) for dry_run in (True, False)
    )
    deeds = Deeds(purges=[planned, done])
    async with running(placed(), WIDE, deeds, mode="storage", reader=answers()) as (app, pilot):
        shown = screen_text(app)
        assert "staged models · 5 of 5" in shown and "no answer in 5 s" in shown
        await press(app, pilot, "slash", *"model-004", "enter", "p")
        assert isinstance(app.screen, ConfirmScreen)
        assert "A dry run says what would be deleted:" in screen_text(app)
        await press(app, pilot, "y")
        assert deeds.done == ["dry run org/model-004-instruct-4bit",
                              "purge org/model-004-instruct-4bit"]  # fmt: skip
        assert "purged: 1.0 GiB freed" in notices(app)


async def test_traces_have_a_waterfall_that_zooms_and_statistics() -> None:
    async with running(placed(), WIDE, mode="traces", reader=answers()) as (app, pilot):
        shown = screen_text(app)
        assert "prefill" in shown and "2.60 s" in shown and "by phase" in shown
        await press(app, pilot, "plus", "plus", "shift+right")
        assert screen_text(app) != shown
        await press(app, pilot, "shift+left", "minus", "minus")
        assert screen_text(app) == shown


async def test_events_lead_to_their_moment_instance_and_node() -> None:
    async with running(placed(), WIDE, mode="events", reader=answers()) as (app, pilot):
        shown = screen_text(app)
        assert "runner_status=RunnerReady" in shown and "kite4 is lost" in shown
        table = app.screen.query_one(DataTable)
        table.move_cursor(row=3)
        await press(app, pilot, "t")
        assert (app.current_mode, app.view.instance) == ("timeline", INSTANCE)
        assert app.view.cross_s is not None
        await press(app, pilot, "6", "i")
        assert app.current_mode == "instances"
        await press(app, pilot, "6", "G", "enter")
        assert "log of kite4" in screen_text(app), "an event about a node opens its log"
        await press(app, pilot, "n")
        assert "log of kite1" in screen_text(app)
        await press(app, pilot, "slash", *"level:err", "enter")
        shown = screen_text(app)
        assert "kite4 is lost" in shown and "kite3 is slow" not in shown


async def test_losses_failures_and_verdicts_are_told_on_every_page() -> None:
    feed = StillFeed(a_cluster(4, instances=instance(), runners=statuses(4)), timeline())
    async with running(feed, WIDE, mode="storage", reader=answers()) as (app, pilot):
        failed = statuses(4) | statuses(1, "RunnerFailed", errorMessage="out of memory")
        bad = a_cluster(3, instances=instance(), runners=failed, lost=LOST)
        feed.frame = StillFeed(bad, d1()).frame
        await press(app, pilot, "ctrl+r")
        told = notices(app)
    assert "node lost: kite4" in told
    assert f"instance failed: {MODEL}: out of memory" in told
    assert "HANG D1: Rank 1 on kite2" in told


async def test_every_key_of_every_page_is_in_the_footer_or_in_the_help() -> None:
    async with running(placed(), WIDE, Deeds(), mode="cluster", reader=answers()) as (app, pilot):
        for key in "123456":
            await press(app, pilot, key, "question_mark")
            told = " ".join(
                active.binding.description for active in app.screen.active_bindings.values()
            )
            for binding in app.screen.BINDINGS:
                assert isinstance(binding, Binding)
                if not binding.action.startswith("step"):  # that is for recordings
                    assert binding.description and binding.description in told, binding
            await press(app, pilot, "question_mark")


async def test_read_only_pages_offer_no_change() -> None:
    deeds = Deeds()
    view = View(read_only=True)
    async with running(placed(), WIDE, deeds, view, "cluster", answers()) as (app, pilot):
        await press(app, pilot, "d", "2", "x", "p", "s", "d", "4", "p", "P")
        assert app.screen is app.page, "no dialog was opened"
    assert deeds.done == []


@pytest.mark.parametrize(
    ("wanted", "often"),
    [(frozenset({Part.TIMELINE}), 12), (frozenset[Part](), 2), (EVERYTHING, 12)],
)
def test_what_nobody_looks_at_is_asked_for_rarely(wanted: frozenset[Part], often: int) -> None:
    watch = ClusterWatch()
    due = [watch._due(wanted) for _ in range(12)]
    assert sum(Part.TIMELINE in parts for parts in due) == often
    assert sum(Part.LOAD in parts for parts in due) <= 4
