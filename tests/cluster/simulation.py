"""A cluster without processes: state machines, a network that misbehaves, a clock that is told.

Everything is decided by one seed, so that what failed once fails again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from skulkd.cluster.actions import (
    Broadcast,
    EntriesApplied,
    Introduce,
    LogMessage,
    NodeGone,
    Renamed,
    Send,
    StateReplaced,
)
from skulkd.cluster.core import Core
from skulkd.cluster.fabric import LEASE_MS
from skulkd.cluster.leader import LeaderPolicy
from skulkd.cluster.messages import ClusterRecord, Leaving, Message
from skulkd.wire.events import Event, InstanceDeleted, TestEvent
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance

STEP_S = 0.1
LEASE_S = LEASE_MS / 1000


def nowhere(_instance: Instance) -> Instance | str:
    return "nothing is planned here"


class Node:
    """One state machine with what its daemon would keep beside it."""

    def __init__(
        self, node_id: NodeId, name: str, policy: LeaderPolicy, record: ClusterRecord | None
    ) -> None:
        self.core = Core(node_id, name, policy, record=record)
        self.log: list[str] = []
        self.lost: list[NodeId] = []
        self.applied = 0
        self.replaced = 0
        self.frozen_at: float | None = None
        self.hung = False
        self.missed: list[tuple[NodeId, Message]] = []
        """What came while its loop hung; its sockets took it."""

    @property
    def node_id(self) -> NodeId:
        return self.core.node_id

    @property
    def frozen(self) -> bool:
        return self.frozen_at is not None


class Simulation:
    def __init__(self, seed: int = 0, policy: LeaderPolicy | None = None) -> None:
        self.random = random.Random(seed)
        self.policy = policy or LeaderPolicy(replan=nowhere)
        self.now = 100.0
        self.nodes: dict[NodeId, Node] = {}
        self.loss = self.duplication = 0.0
        self.max_delay_s = 0.0
        self.submitted: list[Event] = []
        self._flying: list[tuple[float, int, NodeId, NodeId, Message]] = []
        self._count = 0
        self._cut: set[frozenset[NodeId]] = set()
        self._links: set[frozenset[NodeId]] = set()

    def start(
        self,
        node_id: str,
        *,
        name: str = "",
        alone: bool = False,
        record: ClusterRecord | None = None,
    ) -> Node:
        node = Node(NodeId(node_id), name or node_id, self.policy, record)
        self.nodes[node.node_id] = node
        node.core.start(self.now, alone=alone)
        self._perform_actions(node)
        return node

    def kill(self, node_id: str) -> None:
        """At once: its sockets close, the others know."""
        gone = NodeId(node_id)
        self.nodes.pop(gone, None)
        self._flying = [one for one in self._flying if gone not in one[2:4]]

    def leave(self, node_id: str) -> None:
        """Says so first."""
        for other in self.nodes:
            if self._linked(NodeId(node_id), other):
                self._flying.append((self.now, 0, NodeId(node_id), other, Leaving()))
        self.step()
        self.kill(node_id)

    def freeze(self, node_id: str) -> None:
        """The whole process: its links are gone when their lease has run out."""
        node = self.nodes[NodeId(node_id)]
        node.frozen_at = self.now if node.frozen_at is None else node.frozen_at

    def thaw(self, node_id: str) -> None:
        self.nodes[NodeId(node_id)].frozen_at = None

    def hang(self, node_id: str) -> None:
        """Its event loop only: the links live."""
        self.nodes[NodeId(node_id)].hung = True

    def wake(self, node_id: str) -> None:
        node = self.nodes[NodeId(node_id)]
        node.hung = False
        missed, node.missed = node.missed, []
        for sender, message in missed:
            node.core.receive(self.now, sender, message)
        self._perform_actions(node)

    def cut(self, one_side: Iterable[str]) -> None:
        """No word passes between these and the others."""
        side = {NodeId(node) for node in one_side}
        for node in self.nodes:
            for other in self.nodes:
                if (node in side) != (other in side):
                    self._cut.add(frozenset((node, other)))

    def cut_link(self, one: str, other: str) -> None:
        """These two do not reach each other; everybody else reaches both."""
        self._cut.add(frozenset((NodeId(one), NodeId(other))))

    def heal(self) -> None:
        self._cut.clear()

    def append(self, node_id: str, event: Event | None = None) -> None:
        event = event or TestEvent()
        self.submitted.append(event)
        node = self.nodes[NodeId(node_id)]
        node.core.append(self.now, event)
        self._perform_actions(node)

    def delete(self, node_id: str, instance_id: str) -> bool:
        """Ask a master to delete it, as an operator does; True when it has said yes."""
        node = self.nodes[NodeId(node_id)]
        leader, known = node.core.leader, node.core.journal.has_instance(InstanceId(instance_id))
        if leader is None or node.frozen or not known:
            return False
        event = InstanceDeleted(instance_id=InstanceId(instance_id))
        leader.append([event], command=f"c-{event.event_id}", answer="{}")
        self._perform_actions(node)
        return True

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.step()

    def step(self) -> None:
        self.now += STEP_S
        self._change_links()
        due = [one for one in self._flying if one[0] <= self.now]
        self._flying = [one for one in self._flying if one[0] > self.now]
        for _, _, sender, to, message in sorted(due, key=lambda one: one[:2]):
            self._deliver(sender, to, message)
        for node in list(self.nodes.values()):
            if not (node.frozen or node.hung):
                node.core.tick(self.now)
                node.core.flush(self.now)
                self._perform_actions(node)

    # What holds in the end.

    def masters(self) -> list[NodeId]:
        return [node.node_id for node in self.nodes.values() if node.core.role == "leading"]

    def assert_one_cluster(self) -> None:
        nodes = list(self.nodes.values())
        assert len(self.masters()) == 1, {n.node_id: (n.core.role, n.core.session) for n in nodes}
        assert len({node.core.session for node in nodes}) == 1
        assert all(node.core.synced for node in nodes)
        assert all(not node.core.pending for node in nodes)
        first = nodes[0].core.journal
        for node in nodes:
            assert node.core.journal.state == first.state
            assert node.core.journal.unplaced == first.unplaced
        names = {node.core.connected.name for node in nodes}
        assert len(names) == len(nodes)

    def said(self) -> str:
        return "\n".join(line for node in self.nodes.values() for line in node.log)

    # The network.

    def _linked(self, one: NodeId, other: NodeId) -> bool:
        return one != other and frozenset((one, other)) in self._links

    def _lapsed(self, node: NodeId) -> bool:
        frozen_at = self.nodes[node].frozen_at
        return frozen_at is not None and self.now - frozen_at >= LEASE_S

    def _change_links(self) -> None:
        ids = list(self.nodes)
        wanted = {
            frozenset((one, other))
            for one in ids
            for other in ids
            if one < other
            and frozenset((one, other)) not in self._cut
            and not self._lapsed(one)
            and not self._lapsed(other)
        }
        for link in sorted(self._links - wanted, key=sorted):
            self._links.discard(link)
            for node, other in (sorted(link), sorted(link, reverse=True)):
                self._tell_lost(node, other)
        for link in sorted(wanted - self._links, key=sorted):
            self._links.add(link)
            for node, other in (sorted(link), sorted(link, reverse=True)):
                name = self.nodes[other].core.connected.name
                self.nodes[node].core.joined(self.now, other, name)
                self._perform_actions(self.nodes[node])

    def _tell_lost(self, node: NodeId, other: NodeId) -> None:
        if node in self.nodes and not self.nodes[node].frozen:
            self.nodes[node].core.lost(self.now, other)
            self._perform_actions(self.nodes[node])
        elif node in self.nodes:
            # A frozen node hears of it when it runs again.
            self.nodes[node].core.connected.remove(other)

    def _post(self, sender: NodeId, to: NodeId, message: Message) -> None:
        copies = 1 + (self.random.random() < self.duplication)
        if self.random.random() < self.loss:
            copies -= 1
        for _ in range(copies):
            self._count += 1
            at = self.now + self.random.random() * self.max_delay_s
            self._flying.append((at, self._count, sender, to, message))

    def _deliver(self, sender: NodeId, to: NodeId, message: Message) -> None:
        node = self.nodes.get(to)
        if node is None or sender not in self.nodes or not self._linked(sender, to):
            return
        if node.frozen:
            return
        if node.hung:
            node.missed.append((sender, message))
            return
        node.core.receive(self.now, sender, message)
        self._perform_actions(node)

    def _perform_actions(self, node: Node) -> None:  # noqa: PLR0912 - one case per action
        for action in node.core.out.drain():
            match action:
                case Send():
                    self._post(node.node_id, action.to, action.message)
                case Broadcast():
                    for other in self.nodes:
                        if self._linked(node.node_id, other):
                            self._post(node.node_id, other, action.message)
                case EntriesApplied():
                    node.applied += len(action.entries)
                case StateReplaced():
                    node.replaced += 1
                case NodeGone():
                    node.lost.append(action.node)
                case LogMessage():
                    node.log.append(action.text)
                case Introduce():
                    pass  # the links of the simulation need no help
                case Renamed():
                    for other in self.nodes.values():
                        if self._linked(node.node_id, other.node_id):
                            other.core.joined(self.now, node.node_id, action.name)
