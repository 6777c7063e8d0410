"""The timeline application on a clock that stands still, with recorded actions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from skulkctl.errors import CliError
from skulkctl.tui.feed import Feed, Frame, ReplayFeed
from skulkctl.tui.shots import View
from skulkctl.tui.timeline_app import Setup, TimelineApp
from skulkctl.tui.widgets import LinesView
from skulkctl.verdict.ranks import Group, Rank
from tests.timeline.builders import NODES, NOW

NARROW, WIDE = (80, 24), (120, 40)


@dataclass
class Deeds:
    """Actions that only remember what they were asked for."""

    done: list[str] = field(default_factory=list)
    broken: bool = False

    def capture(self, group: Group, rank: Rank | None) -> Path:
        if self.broken:
            raise CliError("no capture today", "the disk is full")
        self.done.append(f"capture {group.short}/{rank.rank if rank else 'all'}")
        return Path("bundle.tar.zst")

    def cancel(self, group: Group, task_id: str) -> str:
        self.done.append(f"cancel {task_id} on {len(group.ranks)}")
        return "cancel requested on all"

    def log_lines(self, rank: Rank) -> list[str]:
        return [f"line of {rank}"]


def frames(*timelines: dict[str, Any]) -> list[Frame]:
    return [Frame(one, NODES, datetime(2026, 5, 4, 14, 7, 32, tzinfo=UTC)) for one in timelines]


@contextlib.asynccontextmanager
async def running(
    feed: Feed | list[Frame],
    size: tuple[int, int] = NARROW,
    actions: Deeds | None = None,
    view: View | None = None,
) -> AsyncIterator[tuple[TimelineApp, Pilot[int]]]:
    """The application after its first answer."""
    source = ReplayFeed(feed) if isinstance(feed, list) else feed
    # So rarely that no question is asked by the clock while a test runs.
    setup = Setup(
        source, actions, None, "lab", view or View(), every_s=3600.0,
        now=lambda: NOW, clock=lambda: 0.0,
    )  # fmt: skip
    app = TimelineApp(setup)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        yield app, pilot


async def settle(app: TimelineApp, pilot: Pilot[int]) -> None:
    """Everything asked for has been answered and drawn."""
    await pilot.pause()
    await app.workers.wait_for_complete()
    await pilot.pause()


async def press(app: TimelineApp, pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(app, pilot)


def screen_text(app: TimelineApp) -> str:
    """What the lines of the present screen say."""
    return "\n".join(one.plain for one in app.screen.query_one(LinesView).lines)
