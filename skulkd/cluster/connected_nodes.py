"""The connected nodes: names and last heartbeats. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from skulkd.cluster.merge import unique_name
from skulkd.cluster.messages import NodeHeartbeat
from skulkd.wire.ids import NodeId


@dataclass(slots=True)
class Member:
    """Another node. `silent`: its connection is open, but its event loop sends no heartbeats."""

    node_id: NodeId
    name: str
    heard_at: float
    heartbeat: NodeHeartbeat | None = None
    silent: bool = False

    def record_heartbeat(self, heartbeat: NodeHeartbeat, now: float) -> bool:
        """Store a heartbeat; True when the node had been silent."""
        self.heartbeat, self.heard_at = heartbeat, now
        was_silent, self.silent = self.silent, False
        return was_silent


class ConnectedNodes:
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

    def mark_silent(self, node: NodeId) -> bool:
        """The master declared this connected node lost; followers get no heartbeats of their own.

        True when it was not silent before.
        """
        member = self.members.get(node)
        if member is None or member.silent:
            return False
        member.silent = True
        return True

    def get(self, node: NodeId) -> Member | None:
        return self.members.get(node)

    def alive(self) -> dict[NodeId, str]:
        """Id and name of every node that is not silent, this one first."""
        others = {one.node_id: one.name for one in self.members.values() if not one.silent}
        return {self.node_id: self.name, **others}

    def unique_name_of(self, node: NodeId) -> str:
        """The node's own name, with a number appended if this node or an older member has it."""
        taken = {self.name}
        for other, member in self.members.items():
            if other == node:
                return unique_name(member.name, taken)
            taken.add(member.name)
        return self.name

    def own_unique_name(self) -> str:
        """This node's name when it becomes master: the other nodes keep theirs."""
        return unique_name(self.name, {member.name for member in self.members.values()})
