"""What the screens look like. `SKULK_UPDATE_SNAPSHOTS=1 pytest tests/timeline` accepts them anew.

Most are text; two SVGs keep the colours. What differs is written beside the accepted file with
`.new` in its name, to be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skulkctl.output.terminal import width as cells
from skulkctl.ui.history import MOST
from skulkctl.ui.snapshot import View
from tests.timeline.app_rig import (
    HUGE,
    NARROW,
    WIDE,
    Answers,
    Deeds,
    StillFeed,
    press,
    running,
    screen_text,
)
from tests.timeline.builders import NODES, TASK, admitted, rank, timeline
from tests.timeline.clusters import (
    ARABIC,
    LONG,
    WIDE_LETTERS,
    a_cluster,
    happened,
    instance,
    logged,
    many_copies,
    staging,
    statuses,
    trace,
    traces,
)
from tests.timeline.situations import d1, decoding, situations

DATA = Path(__file__).parents[1] / "data" / "timeline"
LOST = [{"name": "kite4", "nodeId": "node-3", "since": "2026-05-04T14:04:12Z",
         "sinceSeconds": 200.0}]  # fmt: skip


def by_rule(rule: str, why: str = "") -> dict[str, Any]:
    return next(one for one in situations() if one.rule == rule and one.why == why).timeline


def placed(count: int = 4, **parts: Any) -> StillFeed:
    cluster = a_cluster(count, instances=instance(), runners=statuses(4), **parts)
    return StillFeed(cluster, d1())


def gone() -> StillFeed:
    cluster = a_cluster(3, instances=instance(2), runners=statuses(2), lost=LOST)
    return StillFeed(cluster, by_rule("D24"))


def named_strangely() -> StillFeed:
    names = {**NODES, "node-0": LONG, "node-1": "大阪-二号"}
    placed_models = instance(2, ARABIC) | {"i2": next(iter(instance(2, WIDE_LETTERS).items()))[1]}
    return StillFeed(a_cluster(2, names=names, instances=placed_models, runners=statuses(2)))


def healthy() -> StillFeed:
    busy = [rank(number, [*admitted(20), *decoding(15, 4 + number)]) for number in range(4)]
    cluster = a_cluster(4, instances=instance(), runners=statuses(4))
    return StillFeed(cluster, timeline(*busy))


def waiting() -> StillFeed:
    return StillFeed(staging(), by_rule("FILES", "a long copy"))


STORED = Answers(kept=many_copies(300), found=traces(), spans={TASK: trace()}, happened=happened(),
                 logged=logged())  # fmt: skip
TINY = (40, 20)
EVERY_MODE = ("cluster", "instances", "timeline", "storage", "traces", "events")
SHOTS = {
    "healthy": (healthy, EVERY_MODE),
    "hang": (placed, ("timeline", "cluster", "instances")),
    "node-gone": (gone, ("cluster", "timeline")),
    "staging": (waiting, ("cluster", "instances", "timeline")),
    "empty": (lambda: StillFeed(a_cluster(0)), EVERY_MODE),
    "many-nodes": (lambda: placed(32), ("cluster",)),
    "strange-names": (named_strangely, ("cluster", "instances", "timeline", "storage")),
}
"""What there is to see, and on which pages; storage always has 300 staged models."""


@pytest.fixture(autouse=True)
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment may change colours; pictures must not know it."""
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM", "TEXTUAL_ANIMATIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")


async def screens(feed: StillFeed, modes: Sequence[str], name: str) -> str:
    """One application on every page in every size, as text."""
    shown = []
    stored = Answers() if name == "empty" else STORED
    async with running(feed, NARROW, Deeds(), mode=modes[0], reader=stored) as (app, pilot):
        assert app.snapshot is not None
        for _ in range(MOST):  # so that one poll more or less changes no sparkline
            app.history.add(app.snapshot)
        app.redraw()
        for size in (NARROW, WIDE, HUGE, TINY):
            await pilot.resize_terminal(*size)
            for mode in modes:
                await press(app, pilot, str(EVERY_MODE.index(mode) + 1))
                text = screen_text(app)
                rows = [cells(row) for row in text.splitlines()]
                assert max(rows) <= size[0] and len(rows) <= size[1], (mode, size)
                shown.append(f"=== {mode} {size[0]}x{size[1]}\n{text}\n")
                if pictures := os.environ.get("SKULK_PICTURES"):
                    picture = Path(pictures) / f"{name}-{mode}-{size[0]}.svg"
                    picture.write_text(app.export_screenshot())
    return "\n".join(shown)


@pytest.mark.parametrize("name", SHOTS)
async def test_the_screens_look_as_they_did(name: str) -> None:
    make, modes = SHOTS[name]
    compare(f"{name}.txt", await screens(make(), modes, name))


async def test_without_colour_lanes_have_letters_and_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown = await screens(placed(), ("timeline", "cluster"), "hang-no-color")
    assert "P<<<<" in shown
    assert "# own work" in shown
    compare("hang-no-color.txt", shown)


@pytest.mark.parametrize("theme", ["skulk-dark", "skulk-light", "skulk-contrast"])
async def test_the_colours_are_as_they_were(theme: str) -> None:
    async with running(StillFeed(a_cluster(), d1()), (100, 24)) as (app, pilot):
        app.theme = theme
        app.redraw()
        await press(app, pilot)
        picture = app.export_screenshot()
    compare(f"{theme}.svg", picture)


async def test_a_plain_terminal_gets_plain_letters() -> None:
    async with running(placed(), NARROW, Deeds(), View(ascii=True), "cluster", STORED) as (
        app,
        pilot,
    ):
        for key in ("1", "question_mark", "question_mark", "2", "3", "enter", "enter", "x",
                    "escape", "v", "escape", "colon", "escape", "4", "5", "6"):  # fmt: skip
            await press(app, pilot, key)
            shown = screen_text(app)
            assert shown.isascii(), (key, sorted(set(shown) - set(map(chr, range(128)))))


def test_no_timeline_is_no_timeline() -> None:
    """The empty cluster of the pictures really has nothing in it."""
    assert timeline()["runners"] == []


def compare(name: str, shown: str) -> None:
    """Fail, with the new picture on disk, when it is not the one that was accepted."""
    known = DATA / name
    if os.environ.get("SKULK_UPDATE_SNAPSHOTS"):
        DATA.mkdir(parents=True, exist_ok=True)
        known.write_text(shown)
    fresh = known.with_suffix(f".new{known.suffix}")
    if not known.exists() or known.read_text() != shown:
        fresh.write_text(shown)
        pytest.fail(f"{name} looks different: compare {known} with {fresh}")
    fresh.unlink(missing_ok=True)
