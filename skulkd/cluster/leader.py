"""The master: orders events, brings followers up to date, watches the nodes.

A part of the state machine in `core.py`: no I/O, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from skulkd.cluster.actions import (
    ActionQueue,
    Broadcast,
    EntriesApplied,
    LogMessage,
    NodeGone,
    Send,
)
from skulkd.cluster.connected_nodes import ConnectedNodes
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.member_tracking import MemberTracking
from skulkd.cluster.merge import (
    adopt,
    describe,
    known_nodes,
    loss_events,
    missing_deletions,
)
from skulkd.cluster.messages import (
    AlreadyOrdered,
    AssignedName,
    ClusterRecord,
    Deletion,
    Entries,
    HandOver,
    HandOverDone,
    Join,
    JournalEntry,
    MasterSession,
    NodeHeartbeat,
    Placement,
    RequestHandOver,
    Submit,
    UnplacedList,
)
from skulkd.cluster.placement_restorer import PlacementRestorer
from skulkd.cluster.timing import Timing
from skulkd.wire.events import (
    Event,
    InstanceDeleted,
    NodeTimedOut,
)
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Instance

ENTRIES_LIMIT = 512
SAME_AGE_S = 0.5
FRESH_S = 2.0
"""A follower sent a heartbeat within this time."""
SUCCESSOR_S = 5.0
"""A session that continues another one reports its age with at most this difference."""
RESEND_UNPLACED_S = 5.0

Replan = Callable[[Instance], Instance | str]
"""The same instance on present nodes, or the reason why there is no place for it.

An empty reason means that the answer is not known yet: ask again in a moment.
"""


@dataclass(frozen=True, slots=True)
class LeaderPolicy:
    """Settings of the operator, and how long a master waits."""

    replan: Replan
    on_node_loss: Literal["replace", "delete"] = "replace"
    join_s: float = 6.0
    """How long the nodes of a merged cluster have to join before they count as lost."""
    settle_s: float = 2.0
    """How long a new master waits for the nodes of the old state."""
    retry_s: float = 5.0
    restore_s: float = 20.0
    """How long a placement waits for its own nodes after a cold start."""


class LeaderDeps(Protocol):
    """The part of `Core` that the leader uses."""

    node_id: NodeId
    now: float
    out: ActionQueue
    connected: ConnectedNodes
    journal: JournalReplica
    wall_clock: Callable[[], datetime]

    @property
    def timing(self) -> Timing: ...


class ClusterLeader:
    """Exists while this node is the master."""

    def __init__(self, core: LeaderDeps, session: MasterSession, policy: LeaderPolicy) -> None:
        self.since = self.began = core.now
        """`since` is earlier than `began` when this session continues that of another master."""
        self.session = session
        self._core = core
        self._policy = policy
        self._unsent: list[JournalEntry] = []
        self._restorer = PlacementRestorer(policy, core.now)
        self._absent_dropped = False
        self._drop_absent_at: float | None = None
        self._publish_unplaced_at = 0.0
        self._successor: NodeId | None = None
        self._hand_over_again_at = 0.0
        self._rival_seen_at: dict[NodeId, float] = {}
        self._members = MemberTracking(core, policy, self.append)

    def begin(self, record: ClusterRecord | None) -> None:
        journal = self._core.journal
        if record is not None and journal.session is None:
            journal.lineage = record.lineage
            self._restorer.add_own_record(journal, record)
        journal.begin(self.session)
        if record is not None:
            self._merge_deletions(record.deletions, record.placements)
            self._members.restore(record)
            self._merge_tokens(record)
        self.append(self._restorer.settings(journal))
        for node in self._core.connected.members:
            self.assign_name(node)

    # The journal.

    def append(
        self, events: Iterable[Event], command: str | None = None, answer: str | None = None
    ) -> int:
        """Order and apply; returns the last index. The answer is stored with the last event."""
        journal = self._core.journal
        todo = list(events)
        applied = []
        for number, event in enumerate(todo):
            last = number == len(todo) - 1
            entry = JournalEntry(
                journal.head + 1, event, command if last else None, answer if last else None
            )
            journal.apply(entry)
            applied.append(entry)
        if applied:
            self._unsent += applied
            self._core.out.put(EntriesApplied(tuple(applied)))
        return journal.head

    def flush(self) -> None:
        """Send new entries to the followers."""
        while self._unsent:
            part, self._unsent = self._unsent[:ENTRIES_LIMIT], self._unsent[ENTRIES_LIMIT:]
            self._core.out.put(
                Broadcast(Entries(self.session, tuple(part), self._core.journal.head))
            )

    def receive(self, sender: NodeId, message: Join | Submit | HandOver) -> None:
        if isinstance(message, HandOver):
            self._on_hand_over(sender, message)
        elif message.session == self.session:
            if isinstance(message, Join):
                self._on_join(sender, message)
            else:
                self._on_submit(sender, message.events)

    def _on_submit(self, sender: NodeId, events: Sequence[Event]) -> None:
        journal = self._core.journal
        known = tuple(event.event_id for event in events if journal.knows(event.event_id))
        self.append(event for event in events if event.event_id not in known)
        if known:
            self._core.out.put(Send(sender, AlreadyOrdered(self.session, known)))

    def _on_join(self, sender: NodeId, join: Join) -> None:
        journal = self._core.journal
        held = [entry for entry in join.held if not journal.knows(entry.event.event_id)]
        for entry in held:
            # Only this master decides which nodes are lost.
            if not isinstance(entry.event, NodeTimedOut):
                self.append([entry.event], entry.command, entry.answer)
        if held:
            # They may name nodes that were lost together with the old master.
            self._drop_absent_at = self._core.now + self._policy.settle_s
        if join.record is not None:
            self._merge_deletions(join.record.deletions, join.record.placements)
            self._merge_tokens(join.record)
            if self._restorer.add_record(journal, join.record, self._core.now):
                self.append(self._restorer.settings(journal))
                # A record of this session holds nothing new.
                if join.record.clock < self.session.clock:
                    self._members.restore(join.record)
        if join.legacy is not None:
            self._adopt(join.legacy)
        self.assign_name(sender)
        self.flush()
        tail = self._tail_for(join)
        if tail is None:
            self._core.out.put(Send(sender, journal.snapshot(self.session)))
        else:
            sync = Entries(
                self.session, tail, journal.head, True, journal.lineage, journal.ancestors
            )
            self._core.out.put(Send(sender, sync))
        self._core.out.put(Send(sender, self._unplaced_list()))

    def _tail_for(self, join: Join) -> tuple[JournalEntry, ...] | None:
        """The entries that the follower lacks; None if its history is not a part of this one."""
        journal = self._core.journal
        if join.ledger is None and join.head == -1:
            return journal.since(0, ENTRIES_LIMIT)
        shared = join.ledger == self.session or any(
            join.ledger == one.session and join.head <= one.head for one in journal.ancestors
        )
        return journal.since(join.head + 1, ENTRIES_LIMIT) if shared else None

    # Nodes.

    def assign_name(self, node: NodeId) -> None:
        self._core.out.put(
            Send(node, AssignedName(self.session, self._core.connected.unique_name_of(node)))
        )

    def node_lost(self, node: NodeId, *, connected: bool = False) -> None:
        """`connected`: its connections are open, so the others learn of the loss from here only."""
        journal, name = self._core.journal, self._name(node)
        touched = [
            instance
            for instance in journal.state.instances.values()
            if node in instance.shard_assignments.node_to_runner
        ]
        if connected or node in known_nodes(journal.state):
            self.append(loss_events(journal.state, node, name))
        self._rival_seen_at.pop(node, None)
        if self._successor == node:
            self._successor = None
        for instance in touched:
            self._core.out.put(LogMessage("warning", f"{describe(instance)} lost {name}"))
            if self._policy.on_node_loss == "delete":
                self.append([InstanceDeleted(instance_id=instance.instance_id)])

    def node_stopped(self, name: str) -> None:
        self._members.stopped(name)

    def node_returned(self, node: NodeId) -> None:
        """A silent node sends heartbeats again."""
        self._core.out.put(LogMessage("info", f"{self._name(node)} is back"))

    def tick(self) -> None:
        core = self._core
        for member in list(core.connected.members.values()):
            # Followers send heartbeats to their master only, so none arrived before `began`.
            quiet_s = core.now - max(member.heard_at, self.began)
            if not member.silent and quiet_s > core.timing.silent_s:
                member.silent = True
                text = f"{member.name} ({member.node_id}) gives no sign of life"
                core.out.put(LogMessage("warning", text))
                core.out.put(NodeGone(member.node_id))
                self.node_lost(member.node_id, connected=True)
        if not self._absent_dropped and core.now - self.began >= self._policy.settle_s:
            self._absent_dropped = True
            self._drop_absent_nodes()
        if self._drop_absent_at is not None and core.now >= self._drop_absent_at:
            self._drop_absent_at = None
            self._drop_absent_nodes()
        if self._successor is not None and core.now >= self._hand_over_again_at:
            self._send_hand_over()
        if self._members.track():
            self._publish_unplaced_at = core.now  # Send it to the followers now.
        if self._absent_dropped:
            self._place_unplaced()

    def _drop_absent_nodes(self) -> None:
        """Declare nodes lost that the state names and that are not connected."""
        core = self._core
        for node in known_nodes(core.journal.state) - core.connected.alive().keys():
            self.node_lost(node)

    def _place_unplaced(self) -> None:
        """Place unplaced instances, and publish the list of those that remain."""
        core = self._core
        before = dict(core.journal.unplaced)
        events, notes = self._restorer.place(core.journal, core.connected.alive(), core.now)
        for note in notes:
            core.out.put(LogMessage("warning", note))
        self.append(events)
        if events or before != core.journal.unplaced or core.now >= self._publish_unplaced_at:
            self._publish_unplaced_at = core.now + RESEND_UNPLACED_S
            self.flush()
            core.out.put(Broadcast(self._unplaced_list()))

    def _unplaced_list(self) -> UnplacedList:
        head = self._core.journal.head
        unplaced, members = self._core.journal.unplaced, self._core.journal.membership
        names = tuple(sorted(members.names))
        return UnplacedList(self.session, head, tuple(unplaced.values()), names)

    def _name(self, node: NodeId) -> str:
        return self._core.journal.names.get(node, str(node))

    # Other masters.

    def resolve_rival(self, other: NodeId, heartbeat: NodeHeartbeat) -> None:
        """Two masters met: the one whose session was continued hands over, else the younger.

        Of two unrelated sessions, the node with the larger id decides, so both act alike.
        """
        core = self._core
        if (
            heartbeat.session == self.session
            or core.now - self._rival_seen_at.get(other, -1.0) < 0.2
        ):
            return
        self._rival_seen_at[other] = core.now
        if any(one.session == self.session for one in heartbeat.ancestors):
            if self._keeps_followers_of(other, heartbeat):
                core.out.put(Send(other, RequestHandOver(self.session)))
            else:
                self.hand_over_to(other)
        elif any(one.session == heartbeat.session for one in core.journal.ancestors):
            core.out.put(Send(other, self._own_heartbeat()))
        elif core.node_id > other:
            age, other_age = core.now - self.since, heartbeat.reign_s
            if abs(age - other_age) < SAME_AGE_S or age > other_age:
                core.out.put(Send(other, RequestHandOver(self.session)))
            else:
                self.hand_over_to(other)

    def _keeps_followers_of(self, other: NodeId, heartbeat: NodeHeartbeat) -> bool:
        """Whether the other was cut off and started a session, while the followers stayed here.

        Otherwise its session succeeded this one and has the followers; or it continues this
        session because it reaches more nodes, and then it reports the same age.
        """
        core = self._core
        younger = core.now - self.since - heartbeat.reign_s > SUCCESSOR_S
        return younger and any(
            member.heartbeat is not None
            and member.heartbeat.session == self.session
            and core.now - member.heard_at < FRESH_S
            for member in core.connected.members.values()
            if member.node_id != other
        )

    def _own_heartbeat(self) -> NodeHeartbeat:
        journal = self._core.journal
        age = self._core.now - self.since
        return NodeHeartbeat(self.session, True, journal.standing, age, journal.ancestors)

    def hand_over_to(self, other: NodeId) -> None:
        if self._successor is None and self._core.connected.get(other) is not None:
            self._successor = other
            text = f"{self._name(other)} is master of another cluster: joining it"
            self._core.out.put(LogMessage("info", text))
            self._send_hand_over()

    def _send_hand_over(self) -> None:
        if self._successor is None:
            return
        core = self._core
        self._hand_over_again_at = core.now + 0.5
        member = core.connected.get(self._successor)
        if member is None or member.heartbeat is None or not member.heartbeat.leading:
            # It is no longer master; wait for the next rival.
            self._successor = None
            return
        hand_over = core.journal.hand_over(self.session, core.connected.alive())
        core.out.put(Send(self._successor, hand_over))

    def hand_over_done(self, other: NodeId, head: int) -> bool:
        """Whether the other master has the whole state, so that this node can follow it."""
        if other != self._successor:
            return False
        if head != self._core.journal.head:
            self._send_hand_over()
            return False
        return True

    def _on_hand_over(self, sender: NodeId, hand_over: HandOver) -> None:
        self._adopt(hand_over)
        self.flush()
        answer = HandOverDone(self.session, hand_over.state.last_event_applied_idx)
        self._core.out.put(Send(sender, answer))

    def _adopt(self, hand_over: HandOver) -> None:
        """Merge the state of another history as far as possible. Idempotent."""
        core = self._core
        for node, name in hand_over.names.items():
            core.journal.names.setdefault(node, name)
        alive = {*core.connected.alive(), *hand_over.living}
        self._members.merge(hand_over)
        self._merge_tokens(hand_over)
        self._drop_absent_at = core.now + self._policy.join_s
        standing = [Placement(one, {}) for one in hand_over.state.instances.values()]
        self._merge_deletions(hand_over.deletions, (*standing, *hand_over.waiting))
        events, notes = adopt(core.journal, alive, hand_over)
        for note in notes:
            core.out.put(LogMessage("warning", note))
        self.append(events)
        for placement in hand_over.waiting:
            instance_id = placement.instance.instance_id
            deleted = core.journal.deleted_since(instance_id, hand_over.deletions)
            if not (deleted or core.journal.has_instance(instance_id)):
                core.journal.unplaced[instance_id] = placement

    def _merge_tokens(self, other: ClusterRecord | HandOver) -> None:
        """Add tokens and revocations of another history or a record."""
        self.append(self._core.journal.tokens.missing_events(other.tokens, other.revoked_tokens))

    def _merge_deletions(
        self, deletions: Iterable[Deletion], standing: Iterable[Placement]
    ) -> None:
        """Apply deletions of another history, unless the instance was placed again there."""
        alive = {one.instance.instance_id for one in standing}
        events, notes = missing_deletions(self._core.journal, deletions, alive)
        for note in notes:
            self._core.out.put(LogMessage("warning", note))
        for event in events:
            # As a command with an answer, because only those deletions are remembered.
            self.append([event], f"deleted/{event.event_id}", "{}")
