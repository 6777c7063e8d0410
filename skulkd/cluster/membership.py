"""The members of the cluster by name, and those that left without notice. Pure.

Names, because node ids are new at every start. `lost` changes by journal events only, so every
node holds the same list; `unconfirmed` is what this node has noticed and no master has journaled.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from datetime import datetime

from skulkd.cluster.messages import LostMember
from skulkd.wire.events import Event, NodeLossCleared, NodeLost
from skulkd.wire.ids import NodeId

LOST_LIMIT = 256
"""Of more losses than this the oldest are dropped."""


class Membership:
    """The members that one node knows of, itself included."""

    def __init__(self) -> None:
        self.own_name = ""
        self.names: set[str] = set()
        """Members that are present, or expected and not lost."""
        self.lost: dict[str, LostMember] = {}
        self.unconfirmed: dict[str, LostMember] = {}
        self._leaving = False

    def copy(self) -> Membership:
        """A copy on which events can be tried."""
        other = copy.copy(self)
        other.names, other.lost = self.names.copy(), self.lost.copy()
        other.unconfirmed = self.unconfirmed.copy()
        return other

    def joined(self, name: str, earlier_name: str | None = None) -> None:
        """A node is present; `earlier_name` when it had another name."""
        if earlier_name is not None and earlier_name != name:
            self.names.discard(earlier_name)
        self.names.add(name)
        self.unconfirmed.pop(name, None)

    def others(self) -> tuple[str, ...]:
        """Names of the other members. This node's own may be another one after a restart."""
        return () if self._leaving else tuple(sorted(self.names - {self.own_name}))

    def stopped(self, name: str) -> None:
        """A node announced that it stops."""
        self.names.discard(name)
        self.unconfirmed.pop(name, None)

    def leave(self) -> None:
        """This node stops: it records no further losses, and no members on disk."""
        self._leaving = True

    def vanished(self, node: NodeId, name: str, now: datetime) -> None:
        """A node is gone without notice."""
        if name in self.names and name not in self.lost:
            self.unconfirmed[name] = LostMember(name, node, now)

    def apply(self, event: Event) -> None:
        if isinstance(event, NodeLost):
            self.names.discard(event.name)
            self.unconfirmed.pop(event.name, None)
            self.lost[event.name] = LostMember(event.name, event.node_id, event.since)
            while len(self.lost) > LOST_LIMIT:
                del self.lost[next(iter(self.lost))]
        elif isinstance(event, NodeLossCleared):
            self.lost.pop(event.name, None)

    def replace_lost(self, members: Iterable[LostMember]) -> None:
        """Use the list of a snapshot."""
        self.lost = {one.name: one for one in members}

    def replace_names(self, names: Collection[str]) -> None:
        """The master's list of members."""
        if names:
            self.names = set(names)
            self.unconfirmed = {k: v for k, v in self.unconfirmed.items() if k in self.names}

    def changes(self, here: Collection[str], now: datetime, *, patient: bool) -> list[Event]:
        """The events that a master journals when the nodes with these names are present.

        `patient`: expected members still have time to join; only those that this node saw vanish
        are lost.
        """
        if self._leaving:
            return []
        self.names.update(here)
        events: list[Event] = [
            NodeLossCleared(name=name, cause="returned") for name in self.lost if name in here
        ]
        for name in sorted(self.names.difference(here)):
            seen = self.unconfirmed.get(name)
            if seen is not None or not patient:
                seen = seen or LostMember(name, None, now)
                events.append(NodeLost(name=name, node_id=seen.node_id, since=seen.since))
        return events

    def missing(self, here: Collection[str]) -> list[LostMember]:
        """The lost members that this node knows of, by name."""
        known = {**self.unconfirmed, **self.lost}
        return [known[name] for name in sorted(known) if name not in here]
