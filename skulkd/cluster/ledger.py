"""The journal as one node holds it: the state, the newest entries, and what was decided lately.

Pure: entries go in, in order. Bounded: however long the cluster lives, this stays as large.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable

from skulkd.cluster.membership import Membership
from skulkd.cluster.messages import (
    Ancestor,
    Cede,
    Deletion,
    Entry,
    LostMember,
    Placement,
    Record,
    Session,
    Snapshot,
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


class Ledger:
    """`session` is the one that the state is of; None before the first."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lineage = ""
        self.ancestors: tuple[Ancestor, ...] = ()
        self.state = State()
        self.waiting: dict[InstanceId, Placement] = {}
        self._waiting_as_of = -1
        self.waiting_known = False
        """Whether the master has told a follower what waits: without that a record is not whole."""
        self.names: dict[NodeId, str] = {}
        """Of every node that is or was here, as far as a placement may need it."""
        self.membership = Membership()
        self.tokens = TokenTable()
        self.answers: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self.deletions: OrderedDict[EventId, InstanceId] = OrderedDict()
        """What somebody asked to delete, so that nobody who did not hear of it brings it back."""
        self._tail: deque[Entry] = deque(maxlen=TAIL)
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

    def apply(self, entry: Entry) -> None:
        """Raises OutOfOrder unless this is the next entry."""
        before = self.state
        self.state = apply(before, entry.event, entry.index)
        self._fold_waiting(before, entry)
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
                self._remember(entry.event)

    def since(self, index: int, limit: int) -> tuple[Entry, ...] | None:
        """Up to `limit` entries from this index; None when they are not kept any more."""
        if index > self.head:
            return ()
        first = self._tail[0].index if self._tail else self.head + 1
        if index < first:
            return None
        start = index - first
        return tuple(self._tail[at] for at in range(start, min(start + limit, len(self._tail))))

    def begin(self, session: Session) -> None:
        """A reign of this node, which continues what it holds."""
        if self.session is not None:
            self.ancestors = (Ancestor(self.session, self.head), *self.ancestors)[:ANCESTORS]
        self.session = session
        self.waiting_known = True
        self.lineage = self.lineage or f"{session.master}/{session.clock}"

    def take_waiting(self, placements: Iterable[Placement], head: int) -> None:
        """The master's list as of this index; ignored when this node's is newer."""
        if head >= self._waiting_as_of:
            self._waiting_as_of = head
            self.waiting_known = True
            self.waiting = {one.instance.instance_id: one for one in placements}

    def continue_in(
        self, session: Session | None, lineage: str, ancestors: Iterable[Ancestor]
    ) -> None:
        """What this node holds is a part of that session's history."""
        self.session = session
        self.lineage = lineage
        self.ancestors = tuple(ancestors)
        self._waiting_as_of = -1
        self.waiting_known = False

    def replace(self, snapshot: Snapshot) -> None:
        """Take over the state of another node."""
        self.continue_in(snapshot.session, snapshot.lineage, snapshot.ancestors)
        self.state = snapshot.state
        self.waiting, self._waiting_as_of = {}, -1
        self._tail.clear()
        self._recent = OrderedDict.fromkeys(snapshot.recent)
        self.answers = OrderedDict(snapshot.answers)
        self.deletions = OrderedDict((one.event_id, one.instance_id) for one in snapshot.deletions)
        self.membership.replace_lost(snapshot.lost)
        self.tokens.replace(snapshot.tokens, snapshot.revoked_tokens)

    def snapshot(self, session: Session) -> Snapshot:
        return Snapshot(
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

    def cede(self, session: Session, living: Iterable[NodeId]) -> Cede:
        """What is handed over to another master."""
        return Cede(
            session,
            self.state,
            tuple(self.waiting.values()),
            dict(self.names),
            tuple(living),
            self._deleted(),
            self._lost(),
            self.tokens.all(),
            self.tokens.revoked(),
        )

    def stands(self, instance_id: InstanceId) -> bool:
        """Whether it is placed, or waits for a place."""
        return instance_id in self.state.instances or instance_id in self.waiting

    def deleted_since(self, instance_id: InstanceId, known: Collection[Deletion]) -> bool:
        """Whether it was deleted here by a deletion that those do not know of."""
        if self.stands(instance_id):
            return False
        heard = {one.event_id for one in known}
        return any(
            instance_id == one and event_id not in heard for event_id, one in self.deletions.items()
        )

    def branch(self) -> Ledger:
        """A ledger with the same state, to try out commands on; it has no entries to hand out."""
        other = Ledger()
        other.continue_in(self.session, self.lineage, self.ancestors)
        other.state, other.names = self.state, self.names
        other.waiting = dict(self.waiting)
        other.membership = self.membership.copy()
        other.tokens = self.tokens.copy()
        other.deletions = self.deletions.copy()
        return other

    def record(self) -> Record:
        """What is worth keeping when everything is switched off."""
        placed = [self.placement(instance) for instance in self.state.instances.values()]
        clock, index = self.standing
        return Record(
            self.lineage,
            clock,
            index,
            (*placed, *self.waiting.values()),
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

    def _remember(self, deleted: InstanceDeleted) -> None:
        """Only what was asked for: what the policy deletes on a loss may live on elsewhere."""
        self.deletions[deleted.event_id] = deleted.instance_id
        if len(self.deletions) > DELETIONS:
            self.deletions.popitem(last=False)

    def _fold_waiting(self, before: State, entry: Entry) -> None:
        """An instance that lost a node waits for a place until it is created again or deleted."""
        event = entry.event
        if isinstance(event, NodeTimedOut | InstanceCreated | InstanceDeleted):
            self._waiting_as_of = entry.index
        if isinstance(event, NodeTimedOut):
            for instance_id, instance in before.instances.items():
                if event.node_id in instance.shard_assignments.node_to_runner:
                    self.waiting[instance_id] = self.placement(instance)
        elif isinstance(event, InstanceCreated):
            self.waiting.pop(event.instance.instance_id, None)
        elif isinstance(event, InstanceDeleted):
            self.waiting.pop(event.instance_id, None)
