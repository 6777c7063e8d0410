"""Places unplaced instances on the master: after a cold start, or when a node was lost.

A placement from a record waits for the nodes with its names; one that lost a node is planned again
at once. Dropped placements are logged by name. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.merge import describe, on_same_nodes
from skulkd.cluster.messages import ClusterRecord, Placement
from skulkd.placement.records import lost_move, moved
from skulkd.wire.events import Event, InstanceCreated, InstanceDeleted, TracingStateChanged
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance

if TYPE_CHECKING:
    from skulkd.cluster.leader import LeaderPolicy

ASKING_S = 0.3


@dataclass(slots=True)
class _Hold:
    """When a placement may be planned again, or is dropped."""

    plan_at: float
    drop_at: float | None = None
    logged_reason: str = ""


class PlacementRestorer:
    """Unplaced instances, and how long each waits."""

    def __init__(self, policy: LeaderPolicy, now: float) -> None:
        self._policy = policy
        self._began = now
        self._holds: dict[InstanceId, _Hold] = {}
        self._standing: tuple[int, int] | None = None
        self._restored: set[InstanceId] = set()
        self._tracing: bool | None = None
        self._gone: list[InstanceId] = []

    def add_own_record(self, journal: JournalReplica, record: ClusterRecord) -> None:
        """Add this node's own record, when it is the first master after a cold start."""
        self._restore(journal, record)

    def add_record(self, journal: JournalReplica, record: ClusterRecord, now: float) -> bool:
        """Add the record of a joining node. True when it is newer than those before."""
        if record.lineage != journal.lineage:
            for placement in _not_deleted(journal, record):
                self._wait(journal, placement, now, drop_at=now + self._policy.restore_s)
            return False
        if self._standing is None or record.standing <= self._standing:
            return False
        newer = {placement.instance.instance_id for placement in record.placements}
        self._gone = [one for one in self._restored if one not in newer]
        for instance_id in self._gone:
            journal.unplaced.pop(instance_id, None)
        self._began = now
        self._restore(journal, record)
        return True

    def settings(self, journal: JournalReplica) -> list[Event]:
        """Events for restored settings, and for placements that a newer record lacks."""
        events: list[Event] = [
            InstanceDeleted(instance_id=one) for one in self._gone if one in journal.state.instances
        ]
        self._gone = []
        if self._tracing is not None and self._tracing != journal.state.tracing_enabled:
            events.append(TracingStateChanged(enabled=self._tracing))
        self._tracing = None
        return events

    def place(
        self, journal: JournalReplica, alive: Mapping[NodeId, str], now: float
    ) -> tuple[list[Event], list[str]]:
        """Events for placements that have nodes now, and lines for the log about the others."""
        here = {name: node for node, name in alive.items()}
        events: list[Event] = []
        notes: list[str] = []
        for instance_id, placement in list(journal.unplaced.items()):
            hold = self._holds.setdefault(instance_id, _Hold(now))
            found = on_same_nodes(placement, here)
            if found is None and (planned := self._planned(placement, hold, now, notes)):
                move_event, found = _moved(placement, planned, alive)
                events.append(move_event)
            if found is not None:
                events.append(InstanceCreated(instance=found))
                del self._holds[instance_id]
            elif hold.drop_at is not None and now >= hold.drop_at:
                names = ", ".join(placement.names.values())
                notes.append(f"{describe(placement.instance)} was not kept: {names} did not come")
                del journal.unplaced[instance_id], self._holds[instance_id]
        return events, notes

    def _planned(
        self, placement: Placement, hold: _Hold, now: float, notes: list[str]
    ) -> Instance | None:
        if now < hold.plan_at or hold.drop_at is not None:
            return None
        found = self._policy.replan(placement.instance)
        # An empty reason means that the answer is not known yet.
        hold.plan_at = now + (self._policy.retry_s if found else ASKING_S)
        if not isinstance(found, str):
            return found
        if found and found != hold.logged_reason:
            hold.logged_reason = found
            notes.append(f"{describe(placement.instance)} waits for a place: {found}")
        return None

    def _restore(self, journal: JournalReplica, record: ClusterRecord) -> None:
        self._standing = record.standing
        self._tracing = record.tracing
        for placement in _not_deleted(journal, record):
            self._wait(journal, placement, self._began)
            self._restored.add(placement.instance.instance_id)

    def _wait(
        self,
        journal: JournalReplica,
        placement: Placement,
        now: float,
        drop_at: float | None = None,
    ) -> None:
        instance_id = placement.instance.instance_id
        if instance_id in journal.state.instances or instance_id in journal.unplaced:
            return
        journal.unplaced[instance_id] = placement
        self._holds[instance_id] = _Hold(now + self._policy.restore_s, drop_at)


def _not_deleted(journal: JournalReplica, record: ClusterRecord) -> list[Placement]:
    """Placements of a record, except those deleted here since."""
    return [
        one
        for one in record.placements
        if not journal.deleted_since(one.instance.instance_id, record.deletions)
    ]


def _moved(
    placement: Placement, planned: Instance, alive: Mapping[NodeId, str]
) -> tuple[Event, Instance]:
    """A placement moved to other nodes, because some of its own are absent."""
    gone = [name for name in placement.names.values() if name not in alive.values()]
    reason = absence_text(gone)
    names = {**placement.names, **alive}
    return moved(placement.instance, planned, lost_move(placement.instance, planned, names, reason))


def absence_text(names: Sequence[str]) -> str:
    """Why a placement is moved: `kite2 and kite3 are no longer in the cluster`."""
    verb = "are" if len(names) > 1 else "is"
    return f"{' and '.join(names) or 'a node'} {verb} no longer in the cluster"
