"""Membership on the master: journals which nodes left without notice and which returned.

A part of the state machine in `core.py`: no I/O, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from skulkd.cluster.actions import LogMessage
from skulkd.cluster.messages import ClusterRecord, HandOver, LostMember
from skulkd.wire.events import Event, NodeLossCleared, NodeLost

if TYPE_CHECKING:
    from skulkd.cluster.leader import LeaderDeps, LeaderPolicy


class MemberTracking:
    """Exists while this node is the master."""

    def __init__(
        self, core: LeaderDeps, policy: LeaderPolicy, append: Callable[[Iterable[Event]], object]
    ) -> None:
        self._core = core
        self._policy = policy
        self._append = append
        self._due = core.now + policy.settle_s
        """Until then, members that have not been seen yet may still join."""
        self._restored: set[str] = set()

    def track(self) -> bool:
        """Called with every tick; True when the list of members has changed."""
        core = self._core
        members = core.journal.membership
        before, here = members.others(), core.connected.alive().values()
        events = members.changes(here, core.wall_clock(), patient=core.now < self._due)
        for event in events:
            if isinstance(event, NodeLost):
                core.out.put(LogMessage("warning", f"{event.name} left without notice and is lost"))
        self._append(events)
        return before != members.others()

    def stopped(self, name: str) -> None:
        """A node announced that it stops; a slow one may have been declared lost before."""
        if name in self._core.journal.membership.lost:
            self._append([NodeLossCleared(name=name, cause="stopped")])

    def restore(self, record: ClusterRecord) -> None:
        """Restore members and losses from a record after a cold start; the newest one wins."""
        core, members = self._core, self._core.journal.membership
        members.names = {*core.connected.alive().values(), *record.members}
        self._due = core.now + self._policy.restore_s
        known = {one.name for one in record.lost}
        stale = [name for name in self._restored - known if name in members.lost]
        self._append([NodeLossCleared(name=name, cause="forgotten") for name in stale])
        self._add(record.lost)
        self._restored = known

    def merge(self, hand_over: HandOver) -> None:
        """Add members and losses of another cluster, whose nodes are about to join."""
        names = (hand_over.names[node] for node in hand_over.living if node in hand_over.names)
        self._core.journal.membership.names.update(names)
        self._due = max(self._due, self._core.now + self._policy.join_s)
        self._add(hand_over.lost)

    def _add(self, lost: Iterable[LostMember]) -> None:
        """Add losses of another history, except of nodes that are present or expected."""
        members = self._core.journal.membership
        here = {*members.names, *members.lost, *self._core.connected.alive().values()}
        events = [
            NodeLost(name=one.name, node_id=one.node_id, since=one.since)
            for one in lost
            if one.name not in here
        ]
        self._append(events)
