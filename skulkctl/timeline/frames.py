"""Frames: one timeline with the names of its nodes, as often as somebody asks for one.

Described as steps, so that commands run it on `Daemon` and screens on `AsyncDaemon`. It must not
know what a timeline means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Steps, ask
from skulkctl.daemon.load import load
from skulkctl.daemon.members import Members, from_view
from skulkctl.daemon.nodes import cluster, state
from skulkctl.daemon.placement import placements
from skulkctl.daemon.state import ClusterState
from skulkctl.daemon.timeline import timeline
from skulkctl.errors import CliError, RouteMissing

if TYPE_CHECKING:
    from skulkctl.nodes.rows import NodeItem
    from skulkd.wire.load import ClusterLoad
    from skulkd.wire.placement_record import PlacementsAnswer
    from skulkd.wire.timeline import Timeline


@dataclass(frozen=True)
class Cluster:
    """What else a screen shows: the nodes, what is placed and what is asked of it."""

    state: ClusterState = field(default_factory=lambda: ClusterState({}))
    nodes: Sequence[NodeItem] = ()
    members: Members = field(default_factory=Members)
    placements: PlacementsAnswer | None = None
    load: ClusterLoad | None = None


@dataclass(frozen=True)
class Frame:
    """One timeline, the names of the nodes by id, and when it was received."""

    timeline: Timeline
    names: Mapping[str, str] = field(default_factory=dict)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    cluster: Cluster | None = None
    """None in recordings, and where only the timeline was asked for."""


class Watch:
    """What is remembered from one frame to the next."""

    def __init__(self) -> None:
        # The state no longer has the name of a lost node, so keep it.
        self._names: dict[str, str] = {}
        self._first_seen: dict[str, datetime] = {}

    def next_frame(self) -> Steps[Frame]:
        """Names are asked for once, and again when an unknown node turns up."""
        found = yield from timeline(self._first_seen)
        if not _node_ids(found) <= self._names.keys():
            self._learn_names((yield from ask(state())))
        if not _node_ids(found) <= self._names.keys():
            # A node that the cluster has given up is in no state, only in the list of losses.
            members = yield from _members()
            self._names |= {lost.node_id: lost.name for lost in members.lost if lost.node_id}
        return Frame(found, dict(self._names))

    def _learn_names(self, known: ClusterState) -> None:
        self._names |= {node_id: known.node_name(node_id) for node_id in known.node_ids}


class Part(StrEnum):
    """What a frame may be made of besides the state, which is cheap while it does not change."""

    TIMELINE = "timeline"
    MEMBERS = "members"
    PLACEMENTS = "placements"
    LOAD = "load"


EVERYTHING = frozenset(Part)


class ClusterWatch(Watch):
    """Also asks for the cluster. What nobody looks at is asked for rarely, to notice problems."""

    _RARELY = 6
    _SLOW = frozenset({Part.PLACEMENTS, Part.LOAD})
    """These change slowly: every third time will do."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._frame: Frame | None = None
        self._members = Members()
        self._placements: PlacementsAnswer | None = None
        self._load: ClusterLoad | None = None

    def next_frame(self, wanted: frozenset[Part] = EVERYTHING) -> Steps[Frame]:
        from skulkctl.nodes.rows import node_items, with_lost

        parts = self._due(wanted)
        known = yield from ask(state())
        if Part.MEMBERS in parts:
            self._members = yield from _members()
        if Part.PLACEMENTS in parts:
            self._placements = yield from placements()
        if Part.LOAD in parts:
            self._load = yield from _load_or_none()
        self._learn_names(known)
        members = self._members
        nodes = with_lost(node_items(known, members), members.lost)
        if self._frame is None or Part.TIMELINE in parts:
            self._frame = yield from super().next_frame()
        about = Cluster(known, nodes, members, self._placements, self._load)
        return replace(self._frame, cluster=about, names=dict(self._names), at=datetime.now(UTC))

    def _due(self, wanted: frozenset[Part]) -> frozenset[Part]:
        """The parts to ask for this time."""
        count, self._count = self._count, self._count + 1
        if count % self._RARELY == 0:
            return EVERYTHING
        return wanted if count % 3 == 0 else wanted - self._SLOW


def _members() -> Steps[Members]:
    """A stock node has no such endpoint."""
    try:
        return from_view((yield from ask(cluster())))
    except RouteMissing:
        return Members()


def _load_or_none() -> Steps[ClusterLoad | None]:
    """A stock node has no such endpoint, and a screen must not fail for want of a number."""
    try:
        return (yield from ask(load()))
    except CliError:
        return None


def _node_ids(found: Timeline) -> set[str]:
    runners = {runner.node_id for runner in found.runners}
    return {*runners, *(node.node_id for node in found.unreachable_nodes)}
