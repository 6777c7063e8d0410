"""Pictures of the timeline screens. `SKULK_UPDATE_SNAPSHOTS=1 pytest tests/timeline` redraws them.

A picture that differs is written beside the old one as `.new.svg`, to be looked at.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skulkctl.tui.shots import View
from tests.timeline.app_rig import NARROW, WIDE, Deeds, frames, press, running
from tests.timeline.situations import situations

DATA = Path(__file__).parents[1] / "data" / "timeline"
SHOTS = [
    pytest.param("D1", WIDE, (), View(), id="hang-wide"),
    pytest.param("D1", NARROW, (), View(), id="hang-narrow"),
    pytest.param("D7", NARROW, (), View(span_s=120.0), id="disagree-narrow"),
    pytest.param("D7", WIDE, (), View(span_s=120.0), id="disagree-wide"),
    pytest.param("D1", WIDE, ("enter",), View(), id="recorder-wide"),
    pytest.param("D1", NARROW, ("enter",), View(), id="recorder-narrow"),
    pytest.param("D24", NARROW, (), View(), id="node-gone-narrow"),
    pytest.param("D1", NARROW, ("ctrl+x",), View(), id="confirm-narrow"),
    pytest.param("D1", NARROW, ("question_mark",), View(), id="help-narrow"),
    pytest.param("D1", NARROW, (), View(ascii=True), id="hang-ascii"),
]


@pytest.fixture(autouse=True)
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment may change colours; pictures must not know it."""
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM", "TEXTUAL_ANIMATIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize(("rule", "size", "keys", "view"), SHOTS)
async def test_the_screen_looks_as_it_did(
    rule: str,
    size: tuple[int, int],
    keys: tuple[str, ...],
    view: View,
    request: pytest.FixtureRequest,
) -> None:
    shown = next(one for one in situations() if one.rule == rule)
    async with running(frames(shown.timeline), size, Deeds(), view) as (app, pilot):
        await press(app, pilot, *keys)
        picture = app.export_screenshot()
    compare(request.node.callspec.id, picture)


def compare(name: str, picture: str) -> None:
    """Fail, with the new picture on disk, when it is not the one that was accepted."""
    known = DATA / f"{name}.svg"
    if os.environ.get("SKULK_UPDATE_SNAPSHOTS"):
        DATA.mkdir(parents=True, exist_ok=True)
        known.write_text(picture)
    fresh = known.with_suffix(".new.svg")
    if known.read_text() != picture:
        fresh.write_text(picture)
        pytest.fail(f"{name} looks different: compare {known} with {fresh}")
    fresh.unlink(missing_ok=True)
