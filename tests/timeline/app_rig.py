"""The application on a clock that stands still, with recorded actions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from skulkctl.errors import CliError
from skulkctl.timeline.frames import EVERYTHING, Cluster, Frame, Part
from skulkctl.ui.app import Setup, SkulkApp
from skulkctl.ui.feed import Feed, ReplayFeed
from skulkctl.ui.snapshot import View
from skulkctl.verdict.ranks import Group, Rank
from skulkd.wire.event_stream import EventLine
from skulkd.wire.ids import NodeId
from skulkd.wire.logs import LogLine, LogLines
from skulkd.wire.placement import PlacementPreviewResponse
from skulkd.wire.storage import ClusterStorage, PurgeRequest, PurgeResult
from skulkd.wire.tracing import TraceItems, TraceResponse
from tests.timeline.builders import NODES, NOW, read, timeline

NARROW, WIDE, HUGE = (80, 24), (120, 40), (200, 60)


@dataclass
class Deeds:
    """Actions that only remember what they were asked for."""

    done: list[str] = field(default_factory=list)
    broken: bool = False
    purges: list[PurgeResult] = field(default_factory=list)

    async def capture(self, group: Group, ranks: Sequence[Rank]) -> Path:
        if self.broken:
            raise CliError("no capture today", "the disk is full")
        self.done.append(f"capture {group.short}/{','.join(str(rank.rank) for rank in ranks)}")
        return Path("bundle.tar.zst")

    async def cancel(self, group: Group, task_id: str) -> str:
        self.done.append(f"cancel {task_id} on {len(group.ranks)}")
        return "cancel requested on all"

    async def restart(self, instance_id: str) -> str:
        self.done.append(f"restart {instance_id}")
        return "restarting"

    async def delete(self, instance_id: str) -> str:
        self.done.append(f"delete {instance_id}")
        return "deleting"

    async def drain(self, node_id: str, *, draining: bool) -> str:
        self.done.append(f"{'drain' if draining else 'undrain'} {node_id}")
        return "takes no new work"

    async def place(self, wanted: Any) -> str:
        self.done.append(f"place {wanted.model_id} {wanted.sharding} {wanted.min_nodes}")
        return "0a1b2c3d"

    async def purge(self, wanted: PurgeRequest) -> PurgeResult:
        kind = "dry run" if wanted.dry_run else "purge"
        self.done.append(f"{kind} {wanted.model_id or 'all'}")
        return self.purges.pop(0)


@dataclass
class Answers:
    """What a page gets that asks for more than the feed has."""

    kept: ClusterStorage = field(default_factory=lambda: ClusterStorage(nodes=[]))
    found: TraceItems = field(default_factory=lambda: TraceItems(traces=[]))
    spans: dict[str, TraceResponse] = field(default_factory=dict)
    happened: Sequence[EventLine] = ()
    logged: Sequence[LogLine] = ()
    plans: PlacementPreviewResponse | CliError | None = None

    async def storage(self) -> ClusterStorage:
        return self.kept

    async def traces(self) -> TraceItems:
        return self.found

    async def trace(self, task_id: str) -> TraceResponse:
        return self.spans[task_id]

    async def events(self, since_s: float) -> AsyncIterator[EventLine]:
        for event in self.happened:
            yield event

    async def node_log(self, node_id: str | None, after: int | None) -> LogLines:
        lines = list(self.logged) if after is None else []
        return LogLines(node_id=NodeId(node_id or "node-0"), lines=lines, cursor=len(self.logged))

    async def log_lines(self, rank: Rank) -> list[str]:
        return [f"line of {rank}"]

    async def models(self) -> list[str]:
        return ["org/big-model", "org/small-model"]

    async def previews(self, wanted: Any) -> PlacementPreviewResponse:
        if isinstance(self.plans, CliError):
            raise self.plans
        assert self.plans is not None
        return self.plans


class StillFeed:
    """A daemon that always gives the same answer."""

    live = True

    def __init__(self, cluster: Cluster, document: dict[str, Any] | None = None) -> None:
        names = {node["id"]: node["name"] for node in cluster.nodes} or NODES
        self.frame = Frame(read(document or timeline()), names, NOW, cluster)

    async def poll(self, wanted: frozenset[Part] = EVERYTHING) -> Frame:
        return self.frame

    async def close(self) -> None:
        """Nothing is open."""


def frames(*timelines: dict[str, Any]) -> list[Frame]:
    return [Frame(read(document), NODES, NOW) for document in timelines]


@contextlib.asynccontextmanager
async def running(
    feed: Feed | list[Frame],
    size: tuple[int, int] = NARROW,
    actions: Deeds | None = None,
    view: View | None = None,
    mode: str = "timeline",
    reader: Answers | None = None,
) -> AsyncIterator[tuple[SkulkApp, Pilot[int]]]:
    """The application after its first answer."""
    source = ReplayFeed(feed) if isinstance(feed, list) else feed
    # So rarely that no question is asked by the clock while a test runs.
    setup = Setup(
        source, actions, reader or Answers(), None, "lab", mode, view or View(), every_s=3600.0,
        now=lambda: NOW, clock=lambda: 0.0,
    )  # fmt: skip
    app = SkulkApp(setup)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        yield app, pilot


async def settle(app: SkulkApp, pilot: Pilot[int]) -> None:
    """Everything asked for has been answered and drawn."""
    for _ in range(2):
        await pilot.pause()
        await app.workers.wait_for_complete()
        await pilot.pause()


async def press(app: SkulkApp, pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
    await settle(app, pilot)


def screen_text(app: SkulkApp) -> str:
    """The whole screen as text, as a terminal shows it."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(part.text for part in strip).rstrip() for strip in strips)


def notices(app: SkulkApp) -> str:
    """The toasts that were shown."""
    return "\n".join(f"{notice.title}: {notice.message}" for notice in app._notifications)
