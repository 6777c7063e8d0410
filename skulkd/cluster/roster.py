"""Who is here, by which name, and when each last gave a sign of life. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from skulkd.cluster.merging import unique_name
from skulkd.cluster.messages import Beat
from skulkd.wire.ids import NodeId


@dataclass(slots=True)
class Member:
    """Another node. `silent`: its sockets live, its event loop does not."""

    node_id: NodeId
    name: str
    heard_at: float
    beat: Beat | None = None
    silent: bool = False

    def hear(self, beat: Beat, now: float) -> bool:
        """True when it had been silent."""
        self.beat, self.heard_at = beat, now
        was_silent, self.silent = self.silent, False
        return was_silent


class Roster:
    """This node and the others."""

    def __init__(self, node_id: NodeId, name: str) -> None:
        self.node_id = node_id
        self.name = name
        self.members: dict[NodeId, Member] = {}

    def add(self, node: NodeId, name: str, now: float) -> bool:
        """True when it is new."""
        known = self.members.get(node)
        if known is not None:
            known.name = name
            return False
        self.members[node] = Member(node, name, now)
        return True

    def remove(self, node: NodeId) -> Member | None:
        return self.members.pop(node, None)

    def give_up(self, node: NodeId) -> bool:
        """The master lost a node that is seen here: only the master hears whether its event loop
        works. True when it was not silent before."""
        member = self.members.get(node)
        if member is None or member.silent:
            return False
        member.silent = True
        return True

    def get(self, node: NodeId) -> Member | None:
        return self.members.get(node)

    def living(self) -> dict[NodeId, str]:
        """Id and name of every node that works, this one first."""
        others = {one.node_id: one.name for one in self.members.values() if not one.silent}
        return {self.node_id: self.name, **others}

    def free_name(self, node: NodeId) -> str:
        """The name that a node may bear: its own, unless this node or an older one has it."""
        taken = {self.name}
        for other, member in self.members.items():
            if other == node:
                return unique_name(member.name, taken)
            taken.add(member.name)
        return self.name

    def own_free_name(self) -> str:
        """Names of the others stand; this node gives way when it begins to lead among them."""
        return unique_name(self.name, {member.name for member in self.members.values()})
