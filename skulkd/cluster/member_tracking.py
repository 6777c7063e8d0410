"""The master's side of membership: it journals who left without notice and who is back.

A part of the state machine in `core.py`: no I/O, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from skulkd.cluster.messages import Cede, LostMember, Record
from skulkd.cluster.says import Said
from skulkd.wire.events import Event, NodeLossCleared, NodeLost

if TYPE_CHECKING:
    from skulkd.cluster.ruling import Holder, Rules


class MemberTracking:
    """Lives as long as its master leads."""

    def __init__(
        self, core: Holder, rules: Rules, append: Callable[[Iterable[Event]], object]
    ) -> None:
        self._core = core
        self._rules = rules
        self._append = append
        self._due = core.now + rules.settle_s
        """Until then members that were not seen to vanish may still turn up."""
        self._restored: set[str] = set()

    def track(self) -> bool:
        """Called with every tick; True when the list of members has changed."""
        core = self._core
        members = core.ledger.membership
        before, here = members.others(), core.roster.living().values()
        events = members.changes(here, core.wall_clock(), patient=core.now < self._due)
        for event in events:
            if isinstance(event, NodeLost):
                core.out.put(Said("warning", f"{event.name} left without notice and is lost"))
        self._append(events)
        return before != members.others()

    def stopped(self, name: str) -> None:
        """A node said that it stops; it may have counted as lost when it was only slow."""
        if name in self._core.ledger.membership.lost:
            self._append([NodeLossCleared(name=name, cause="stopped")])

    def restore(self, record: Record) -> None:
        """Members and losses as a disk has them, after a cold start; the newest disk counts."""
        core, members = self._core, self._core.ledger.membership
        members.names = {*core.roster.living().values(), *record.members}
        self._due = core.now + self._rules.restore_s
        known = {one.name for one in record.lost}
        stale = [name for name in self._restored - known if name in members.lost]
        self._append([NodeLossCleared(name=name, cause="forgotten") for name in stale])
        self._add(record.lost)
        self._restored = known

    def merge(self, cede: Cede) -> None:
        """Members and losses of another cluster, whose nodes are about to join this one."""
        names = (cede.names[node] for node in cede.living if node in cede.names)
        self._core.ledger.membership.names.update(names)
        self._due = max(self._due, self._core.now + self._rules.join_s)
        self._add(cede.lost)

    def _add(self, lost: Iterable[LostMember]) -> None:
        """Losses that another history knows of, except of nodes that are here or expected."""
        members = self._core.ledger.membership
        here = {*members.names, *members.lost, *self._core.roster.living().values()}
        events = [
            NodeLost(name=one.name, node_id=one.node_id, since=one.since)
            for one in lost
            if one.name not in here
        ]
        self._append(events)
