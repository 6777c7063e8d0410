"""One node's replica of the journal: the state, the newest entries and the latest answers.

Pure: entries are applied in order. The size is bounded, however long the cluster runs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable

from skulkd.cluster.membership import Membership
from skulkd.cluster.messages import (
    Ancestor,
    ClusterRecord,
    Deletion,
    HandOver,
    JournalEntry,
    JournalSnapshot,
    LostMember,
    MasterSession,
    Placement,
)
from skulkd.cluster.reducer import apply
from skulkd.cluster.tokens import TokenTable
from skulkd.wire.events import InstanceCreated, InstanceDeleted, NodeTimedOut
from skulkd.wire.ids import EventId, InstanceId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.state import State

TAIL = 4096
RECENT = 8192
ANSWERS = 512
ANCESTORS = 8
DELETIONS = 512


class JournalReplica:
    """`session` is the one that the state belongs to; None before the first."""

    def __init__(self) -> None:
        self.session: MasterSession | None = None
        self.lineage = ""
        self.ancestors: tuple[Ancestor, ...] = ()
        self.state = State()
        self.unplaced: dict[InstanceId, Placement] = {}
        self._unplaced_as_of = -1
        self.unplaced_known = False
        """Whether a follower has the master's list of unplaced instances; a record needs it."""
        self.names: dict[NodeId, str] = {}
        """Names of present and former nodes, for placements."""
        self.membership = Membership()
        self.tokens = TokenTable()
        self.answers: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self.deletions: OrderedDict[EventId, InstanceId] = OrderedDict()
        """Deletions by command, so that a node that missed one does not restore the instance."""
        self._tail: deque[JournalEntry] = deque(maxlen=TAIL)
        self._recent: OrderedDict[EventId, None] = OrderedDict()

    @property
    def head(self) -> int:
        return self.state.last_event_applied_idx

    @property
    def standing(self) -> tuple[int, int]:
        return (self.session.clock if self.session else 0, self.head)

    def knows(self, event_id: EventId) -> bool:
        return event_id in self._recent

    def recent(self) -> tuple[EventId, ...]:
        return tuple(self._recent)

    def apply(self, entry: JournalEntry) -> None:
        """Raises OutOfOrder unless this is the next entry."""
        before = self.state
        self.state = apply(before, entry.event, entry.index)
        self._update_unplaced(before, entry)
        self.membership.apply(entry.event)
        self.tokens.apply(entry.event)
        self._tail.append(entry)
        self._recent[entry.event.event_id] = None
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        if entry.command is not None:
            self.answers[entry.command] = (entry.index, entry.answer or "")
            if len(self.answers) > ANSWERS:
                self.answers.popitem(last=False)
            if isinstance(entry.event, InstanceDeleted):
                self._remember_deletion(entry.event)

    def since(self, index: int, limit: int) -> tuple[JournalEntry, ...] | None:
        """Up to `limit` entries from this index; None when they are no longer kept."""
        if index > self.head:
            return ()
        first = self._tail[0].index if self._tail else self.head + 1
        if index < first:
            return None
        start = index - first
        return tuple(self._tail[at] for at in range(start, min(start + limit, len(self._tail))))

    def begin(self, session: MasterSession) -> None:
        """Begin a session of this node as master, on top of the current state."""
        if self.session is not None:
            self.ancestors = (Ancestor(self.session, self.head), *self.ancestors)[:ANCESTORS]
        self.session = session
        self.unplaced_known = True
        self.lineage = self.lineage or f"{session.master}/{session.clock}"

    def set_unplaced(self, placements: Iterable[Placement], head: int) -> None:
        """Store the master's list as of this index, unless this node's list is newer."""
        if head >= self._unplaced_as_of:
            self._unplaced_as_of = head
            self.unplaced_known = True
            self.unplaced = {one.instance.instance_id: one for one in placements}

    def switch_session(
        self, session: MasterSession | None, lineage: str, ancestors: Iterable[Ancestor]
    ) -> None:
        """The state of this node is a part of that session's history."""
        self.session = session
        self.lineage = lineage
        self.ancestors = tuple(ancestors)
        self._unplaced_as_of = -1
        self.unplaced_known = False

    def replace(self, snapshot: JournalSnapshot) -> None:
        """Replace everything by the snapshot of another node."""
        self.switch_session(snapshot.session, snapshot.lineage, snapshot.ancestors)
        self.state = snapshot.state
        self.unplaced, self._unplaced_as_of = {}, -1
        self._tail.clear()
        self._recent = OrderedDict.fromkeys(snapshot.recent)
        self.answers = OrderedDict(snapshot.answers)
        self.deletions = OrderedDict((one.event_id, one.instance_id) for one in snapshot.deletions)
        self.membership.replace_lost(snapshot.lost)
        self.tokens.replace(snapshot.tokens, snapshot.revoked_tokens)

    def snapshot(self, session: MasterSession) -> JournalSnapshot:
        return JournalSnapshot(
            session,
            self.state,
            self.lineage,
            self.recent(),
            dict(self.answers),
            self.ancestors,
            self._deleted(),
            self._lost(),
            self.tokens.all(),
            self.tokens.revoked(),
        )

    def hand_over(self, session: MasterSession, alive: Iterable[NodeId]) -> HandOver:
        """What is sent to the master that stays."""
        return HandOver(
            session,
            self.state,
            tuple(self.unplaced.values()),
            dict(self.names),
            tuple(alive),
            self._deleted(),
            self._lost(),
            self.tokens.all(),
            self.tokens.revoked(),
        )

    def has_instance(self, instance_id: InstanceId) -> bool:
        """Whether the instance is placed or unplaced, that is, not deleted."""
        return instance_id in self.state.instances or instance_id in self.unplaced

    def deleted_since(self, instance_id: InstanceId, known: Collection[Deletion]) -> bool:
        """Whether it was deleted here by a deletion that is not in `known`."""
        if self.has_instance(instance_id):
            return False
        known_ids = {one.event_id for one in known}
        return any(
            instance_id == one and event_id not in known_ids
            for event_id, one in self.deletions.items()
        )

    def branch(self) -> JournalReplica:
        """A copy of the state, without entries, on which commands can be tried."""
        other = JournalReplica()
        other.switch_session(self.session, self.lineage, self.ancestors)
        other.state, other.names = self.state, self.names
        other.unplaced = dict(self.unplaced)
        other.membership = self.membership.copy()
        other.tokens = self.tokens.copy()
        other.deletions = self.deletions.copy()
        return other

    def record(self) -> ClusterRecord:
        """The part that is kept on disk."""
        placed = [self.placement(instance) for instance in self.state.instances.values()]
        clock, index = self.standing
        return ClusterRecord(
            self.lineage,
            clock,
            index,
            (*placed, *self.unplaced.values()),
            self.state.tracing_enabled,
            self._deleted(),
            self.membership.others(),
            self._lost(),
            self.tokens.all(),
            self.tokens.revoked(),
        )

    def placement(self, instance: Instance) -> Placement:
        nodes = instance.shard_assignments.node_to_runner
        return Placement(instance, {node: self.names.get(node, str(node)) for node in nodes})

    def _deleted(self) -> tuple[Deletion, ...]:
        return tuple(Deletion(*one) for one in self.deletions.items())

    def _lost(self) -> tuple[LostMember, ...]:
        return tuple(self.membership.lost.values())

    def _remember_deletion(self, deleted: InstanceDeleted) -> None:
        """Only deletions by command: one by the loss policy may not apply to other histories."""
        self.deletions[deleted.event_id] = deleted.instance_id
        if len(self.deletions) > DELETIONS:
            self.deletions.popitem(last=False)

    def _update_unplaced(self, before: State, entry: JournalEntry) -> None:
        """An instance that lost a node is unplaced until it is created again or deleted."""
        event = entry.event
        if isinstance(event, NodeTimedOut | InstanceCreated | InstanceDeleted):
            self._unplaced_as_of = entry.index
        if isinstance(event, NodeTimedOut):
            for instance_id, instance in before.instances.items():
                if event.node_id in instance.shard_assignments.node_to_runner:
                    self.unplaced[instance_id] = self.placement(instance)
        elif isinstance(event, InstanceCreated):
            self.unplaced.pop(event.instance.instance_id, None)
        elif isinstance(event, InstanceDeleted):
            self.unplaced.pop(event.instance_id, None)
