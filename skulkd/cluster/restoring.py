"""Placements without nodes, on the master: after a cold start, or when a node was lost.

One that was read from disk waits for the nodes that bore its names; one whose node was lost is
planned anew at once. What cannot be kept is said by name. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skulkd.cluster.ledger import Ledger
from skulkd.cluster.merging import describe, on_same_nodes
from skulkd.cluster.messages import Placement, Record
from skulkd.placement.records import lost_move, moved
from skulkd.wire.events import Event, InstanceCreated, InstanceDeleted, TracingStateChanged
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance

if TYPE_CHECKING:
    from skulkd.cluster.ruling import Rules

ASKING_S = 0.3


@dataclass(slots=True)
class _Hold:
    """When a placement may be planned anew, or is given up."""

    plan_at: float
    drop_at: float | None = None
    said: str = ""


class Restoring:
    """What waits, and until when."""

    def __init__(self, rules: Rules, now: float) -> None:
        self._rules = rules
        self._began = now
        self._holds: dict[InstanceId, _Hold] = {}
        self._standing: tuple[int, int] | None = None
        self._restored: set[InstanceId] = set()
        self._tracing: bool | None = None
        self._gone: list[InstanceId] = []

    def take_own(self, ledger: Ledger, record: Record) -> None:
        """This node's own disk, when it leads first after a cold start."""
        self._take(ledger, record)

    def take(self, ledger: Ledger, record: Record, now: float) -> bool:
        """The disk of a node that joins. True when it says something new."""
        if record.lineage != ledger.lineage:
            for placement in _not_deleted(ledger, record):
                self._wait(ledger, placement, now, drop_at=now + self._rules.restore_s)
            return False
        if self._standing is None or record.standing <= self._standing:
            return False
        newer = {placement.instance.instance_id for placement in record.placements}
        self._gone = [one for one in self._restored if one not in newer]
        for instance_id in self._gone:
            ledger.waiting.pop(instance_id, None)
        self._began = now
        self._take(ledger, record)
        return True

    def settings(self, ledger: Ledger) -> list[Event]:
        """Events for what is not a placement, and for placements that a newer disk lacks."""
        events: list[Event] = [
            InstanceDeleted(instance_id=one) for one in self._gone if one in ledger.state.instances
        ]
        self._gone = []
        if self._tracing is not None and self._tracing != ledger.state.tracing_enabled:
            events.append(TracingStateChanged(enabled=self._tracing))
        self._tracing = None
        return events

    def settle(
        self, ledger: Ledger, living: Mapping[NodeId, str], now: float
    ) -> tuple[list[Event], list[str]]:
        """Events for placements that have a place now, and what there is to say of the others."""
        here = {name: node for node, name in living.items()}
        events: list[Event] = []
        notes: list[str] = []
        for instance_id, placement in list(ledger.waiting.items()):
            hold = self._holds.setdefault(instance_id, _Hold(now))
            found = on_same_nodes(placement, here)
            if found is None and (planned := self._planned(placement, hold, now, notes)):
                told, found = _moved(placement, planned, living)
                events.append(told)
            if found is not None:
                events.append(InstanceCreated(instance=found))
                del self._holds[instance_id]
            elif hold.drop_at is not None and now >= hold.drop_at:
                names = ", ".join(placement.names.values())
                notes.append(f"{describe(placement.instance)} was not kept: {names} did not come")
                del ledger.waiting[instance_id], self._holds[instance_id]
        return events, notes

    def _planned(
        self, placement: Placement, hold: _Hold, now: float, notes: list[str]
    ) -> Instance | None:
        if now < hold.plan_at or hold.drop_at is not None:
            return None
        found = self._rules.replan(placement.instance)
        # An empty reason: it is being asked for and will be there in a moment.
        hold.plan_at = now + (self._rules.retry_s if found else ASKING_S)
        if not isinstance(found, str):
            return found
        if found and found != hold.said:
            hold.said = found
            notes.append(f"{describe(placement.instance)} waits for a place: {found}")
        return None

    def _take(self, ledger: Ledger, record: Record) -> None:
        self._standing = record.standing
        self._tracing = record.tracing
        for placement in _not_deleted(ledger, record):
            self._wait(ledger, placement, self._began)
            self._restored.add(placement.instance.instance_id)

    def _wait(
        self, ledger: Ledger, placement: Placement, now: float, drop_at: float | None = None
    ) -> None:
        instance_id = placement.instance.instance_id
        if instance_id in ledger.state.instances or instance_id in ledger.waiting:
            return
        ledger.waiting[instance_id] = placement
        self._holds[instance_id] = _Hold(now + self._rules.restore_s, drop_at)


def _not_deleted(ledger: Ledger, record: Record) -> list[Placement]:
    """Placements of a disk, without those of whose deletion it has not heard."""
    return [
        one
        for one in record.placements
        if not ledger.deleted_since(one.instance.instance_id, record.deletions)
    ]


def _moved(
    placement: Placement, planned: Instance, living: Mapping[NodeId, str]
) -> tuple[Event, Instance]:
    """A placement on other nodes than before, because some of its own are not here."""
    gone = [name for name in placement.names.values() if name not in living.values()]
    reason = absence_text(gone)
    names = {**placement.names, **living}
    return moved(placement.instance, planned, lost_move(placement.instance, planned, names, reason))


def absence_text(names: Sequence[str]) -> str:
    """Why a placement is moved: `kite2 and kite3 are no longer in the cluster`."""
    verb = "are" if len(names) > 1 else "is"
    return f"{' and '.join(names) or 'a node'} {verb} no longer in the cluster"
