"""What a node does while it is master: order events, bring followers up to date, mind the nodes.

A part of the state machine in `core.py`: no I/O, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from skulkd.cluster.ledger import Ledger
from skulkd.cluster.member_tracking import MemberTracking
from skulkd.cluster.merging import (
    adopt,
    describe,
    known_nodes,
    loss_events,
    unheard_deletions,
)
from skulkd.cluster.messages import (
    Beat,
    Cede,
    Ceded,
    Conquer,
    Deletion,
    Entries,
    Entry,
    Join,
    Known,
    Named,
    Placement,
    Record,
    Session,
    Submit,
    Waiting,
)
from skulkd.cluster.restoring import Restoring
from skulkd.cluster.roster import Roster
from skulkd.cluster.says import Applied, Broadcast, Lost, Outbox, Said, Send
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
"""A follower that follows still has said so since."""
SUCCESSOR_S = 5.0
"""A reign that continues another in its name is no more than this younger than it claims."""
TELL_AGAIN_S = 5.0

Replan = Callable[[Instance], Instance | str]
"""The same instance on nodes that are here, or the reason why it fits nowhere.

An empty reason means that it is not known yet and to be asked again in a moment.
"""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator decides, and how patient a master is."""

    replan: Replan
    on_node_loss: Literal["replace", "delete"] = "replace"
    join_s: float = 6.0
    """Nodes of a cluster that ceded have so long to join; then they count as lost."""
    settle_s: float = 2.0
    """A new master waits so long for nodes of the old state to turn up."""
    retry_s: float = 5.0
    restore_s: float = 20.0
    """After a cold start: how long a placement waits for its own nodes."""


class Holder(Protocol):
    """What a reign needs of the node."""

    node_id: NodeId
    now: float
    out: Outbox
    roster: Roster
    ledger: Ledger
    wall_clock: Callable[[], datetime]

    @property
    def timing(self) -> Timing: ...


class Ruling:
    """From the moment this node leads until it does no longer."""

    def __init__(self, core: Holder, session: Session, rules: Rules) -> None:
        self.since = self.began = core.now
        """`since` is earlier than `began` when this session continues another's in its name."""
        self.session = session
        self._core = core
        self._rules = rules
        self._fresh: list[Entry] = []
        self._restoring = Restoring(rules, core.now)
        self._swept = False
        self._sweep_at: float | None = None
        self._waiting_at = 0.0
        self._ceding: NodeId | None = None
        self._ceding_at = 0.0
        self._met_at: dict[NodeId, float] = {}
        self._members = MemberTracking(core, rules, self.append)

    def begin(self, record: Record | None) -> None:
        ledger = self._core.ledger
        if record is not None and ledger.session is None:
            ledger.lineage = record.lineage
            self._restoring.take_own(ledger, record)
        ledger.begin(self.session)
        if record is not None:
            self._bury(record.deletions, record.placements)
            self._members.restore(record)
            self._unite_tokens(record)
        self.append(self._restoring.settings(ledger))
        for node in self._core.roster.members:
            self.name(node)

    # The journal.

    def append(
        self, events: Iterable[Event], command: str | None = None, answer: str | None = None
    ) -> int:
        """Order and apply; the index of the last. The answer goes with the last event."""
        ledger = self._core.ledger
        todo = list(events)
        applied = []
        for number, event in enumerate(todo):
            last = number == len(todo) - 1
            entry = Entry(
                ledger.head + 1, event, command if last else None, answer if last else None
            )
            ledger.apply(entry)
            applied.append(entry)
        if applied:
            self._fresh += applied
            self._core.out.put(Applied(tuple(applied)))
        return ledger.head

    def flush(self) -> None:
        """Tell the followers what is new."""
        while self._fresh:
            part, self._fresh = self._fresh[:ENTRIES_LIMIT], self._fresh[ENTRIES_LIMIT:]
            self._core.out.put(
                Broadcast(Entries(self.session, tuple(part), self._core.ledger.head))
            )

    def receive(self, sender: NodeId, message: Join | Submit | Cede) -> None:
        if isinstance(message, Cede):
            self._on_cede(sender, message)
        elif message.session == self.session:
            if isinstance(message, Join):
                self._on_join(sender, message)
            else:
                self._on_submit(sender, message.events)

    def _on_submit(self, sender: NodeId, events: Sequence[Event]) -> None:
        ledger = self._core.ledger
        known = tuple(event.event_id for event in events if ledger.knows(event.event_id))
        self.append(event for event in events if event.event_id not in known)
        if known:
            self._core.out.put(Send(sender, Known(self.session, known)))

    def _on_join(self, sender: NodeId, join: Join) -> None:
        ledger = self._core.ledger
        held = [entry for entry in join.held if not ledger.knows(entry.event.event_id)]
        for entry in held:
            # Who is here is for this master to say.
            if not isinstance(entry.event, NodeTimedOut):
                self.append([entry.event], entry.command, entry.answer)
        if held:
            # They may speak of nodes that went with the old master.
            self._sweep_at = self._core.now + self._rules.settle_s
        if join.record is not None:
            self._bury(join.record.deletions, join.record.placements)
            self._unite_tokens(join.record)
            if self._restoring.take(ledger, join.record, self._core.now):
                self.append(self._restoring.settings(ledger))
                # A record of this very session holds nothing that this master does not know.
                if join.record.clock < self.session.clock:
                    self._members.restore(join.record)
        if join.legacy is not None:
            self._take_over(join.legacy)
        self.name(sender)
        self.flush()
        tail = self._tail_for(join)
        if tail is None:
            self._core.out.put(Send(sender, ledger.snapshot(self.session)))
        else:
            sync = Entries(self.session, tail, ledger.head, True, ledger.lineage, ledger.ancestors)
            self._core.out.put(Send(sender, sync))
        self._core.out.put(Send(sender, self._waiting()))

    def _tail_for(self, join: Join) -> tuple[Entry, ...] | None:
        """What the follower lacks, if its history is a part of this one; else None."""
        ledger = self._core.ledger
        if join.ledger is None and join.head == -1:
            return ledger.since(0, ENTRIES_LIMIT)
        shared = join.ledger == self.session or any(
            join.ledger == one.session and join.head <= one.head for one in ledger.ancestors
        )
        return ledger.since(join.head + 1, ENTRIES_LIMIT) if shared else None

    # Nodes.

    def name(self, node: NodeId) -> None:
        self._core.out.put(Send(node, Named(self.session, self._core.roster.free_name(node))))

    def node_lost(self, node: NodeId, *, connected: bool = False) -> None:
        """`connected`: others still see its sockets, so they must hear of the loss from here."""
        ledger, name = self._core.ledger, self._name(node)
        touched = [
            instance
            for instance in ledger.state.instances.values()
            if node in instance.shard_assignments.node_to_runner
        ]
        if connected or node in known_nodes(ledger.state):
            self.append(loss_events(ledger.state, node, name))
        self._met_at.pop(node, None)
        if self._ceding == node:
            self._ceding = None
        for instance in touched:
            self._core.out.put(Said("warning", f"{describe(instance)} lost {name}"))
            if self._rules.on_node_loss == "delete":
                self.append([InstanceDeleted(instance_id=instance.instance_id)])

    def node_stopped(self, name: str) -> None:
        self._members.stopped(name)

    def node_back(self, node: NodeId) -> None:
        """A node that had been silent gives signs of life again."""
        self._core.out.put(Said("info", f"{self._name(node)} is back"))

    def tick(self) -> None:
        core = self._core
        for member in list(core.roster.members.values()):
            # Followers tell only their master, so this one has not heard them before it led.
            quiet_s = core.now - max(member.heard_at, self.began)
            if not member.silent and quiet_s > core.timing.silent_s:
                member.silent = True
                text = f"{member.name} ({member.node_id}) gives no sign of life"
                core.out.put(Said("warning", text))
                core.out.put(Lost(member.node_id))
                self.node_lost(member.node_id, connected=True)
        if not self._swept and core.now - self.began >= self._rules.settle_s:
            self._swept = True
            self._sweep()
        if self._sweep_at is not None and core.now >= self._sweep_at:
            self._sweep_at = None
            self._sweep()
        if self._ceding is not None and core.now >= self._ceding_at:
            self._send_cede()
        if self._members.track():
            self._waiting_at = core.now  # So that followers hear of it now.
        if self._swept:
            self._settle()

    def _sweep(self) -> None:
        """Nodes that the state speaks of and that did not turn up are lost."""
        core = self._core
        for node in known_nodes(core.ledger.state) - core.roster.living().keys():
            self.node_lost(node)

    def _settle(self) -> None:
        """Find a place for placements that wait for one."""
        core = self._core
        before = dict(core.ledger.waiting)
        events, notes = self._restoring.settle(core.ledger, core.roster.living(), core.now)
        for note in notes:
            core.out.put(Said("warning", note))
        self.append(events)
        if events or before != core.ledger.waiting or core.now >= self._waiting_at:
            self._waiting_at = core.now + TELL_AGAIN_S
            self.flush()
            core.out.put(Broadcast(self._waiting()))

    def _waiting(self) -> Waiting:
        head = self._core.ledger.head
        waiting, members = self._core.ledger.waiting, self._core.ledger.membership
        names = tuple(sorted(members.names))
        return Waiting(self.session, head, tuple(waiting.values()), names)

    def _name(self, node: NodeId) -> str:
        return self._core.ledger.names.get(node, str(node))

    # Other masters.

    def meet(self, other: NodeId, beat: Beat) -> None:
        """Two masters: one that was deposed gives way; else the larger id decides for both."""
        core = self._core
        if beat.session == self.session or core.now - self._met_at.get(other, -1.0) < 0.2:
            return
        self._met_at[other] = core.now
        if any(one.session == self.session for one in beat.ancestors):
            if self._left_by(other, beat):
                core.out.put(Send(other, Conquer(self.session)))
            else:
                self.cede_to(other)
        elif any(one.session == beat.session for one in core.ledger.ancestors):
            core.out.put(Send(other, self._own_beat()))
        elif core.node_id > other:
            age, other_age = core.now - self.since, beat.reign_s
            if abs(age - other_age) < SAME_AGE_S or age > other_age:
                core.out.put(Send(other, Conquer(self.session)))
            else:
                self.cede_to(other)

    def _left_by(self, other: NodeId, beat: Beat) -> bool:
        """Whether the other was cut off and began anew, while the rest has stayed here.

        Else its reign is the successor of this one, whose followers are there; or it leads in
        the name of this one because it reaches more nodes, and says that it is as old.
        """
        core = self._core
        younger = core.now - self.since - beat.reign_s > SUCCESSOR_S
        return younger and any(
            member.beat is not None
            and member.beat.session == self.session
            and core.now - member.heard_at < FRESH_S
            for member in core.roster.members.values()
            if member.node_id != other
        )

    def _own_beat(self) -> Beat:
        ledger = self._core.ledger
        age = self._core.now - self.since
        return Beat(self.session, True, ledger.standing, age, ledger.ancestors)

    def cede_to(self, other: NodeId) -> None:
        if self._ceding is None and self._core.roster.get(other) is not None:
            self._ceding = other
            text = f"{self._name(other)} is master of another cluster: joining it"
            self._core.out.put(Said("info", text))
            self._send_cede()

    def _send_cede(self) -> None:
        if self._ceding is None:
            return
        core = self._core
        self._ceding_at = core.now + 0.5
        member = core.roster.get(self._ceding)
        if member is None or member.beat is None or not member.beat.leading:
            # It leads no longer itself; whom to join is to be seen anew.
            self._ceding = None
            return
        cede = core.ledger.cede(self.session, core.roster.living())
        core.out.put(Send(self._ceding, cede))

    def ceded(self, other: NodeId, head: int) -> bool:
        """Whether everything this side had is in the other's hands, so that it can follow."""
        if other != self._ceding:
            return False
        if head != self._core.ledger.head:
            self._send_cede()
            return False
        return True

    def _on_cede(self, sender: NodeId, cede: Cede) -> None:
        self._take_over(cede)
        self.flush()
        answer = Ceded(self.session, cede.state.last_event_applied_idx)
        self._core.out.put(Send(sender, answer))

    def _take_over(self, cede: Cede) -> None:
        """Keep of another history what can be kept. Harmless twice."""
        core = self._core
        for node, name in cede.names.items():
            core.ledger.names.setdefault(node, name)
        living = {*core.roster.living(), *cede.living}
        self._members.merge(cede)
        self._unite_tokens(cede)
        self._sweep_at = core.now + self._rules.join_s
        standing = [Placement(one, {}) for one in cede.state.instances.values()]
        self._bury(cede.deletions, (*standing, *cede.waiting))
        events, notes = adopt(core.ledger, living, cede)
        for note in notes:
            core.out.put(Said("warning", note))
        self.append(events)
        for placement in cede.waiting:
            instance_id = placement.instance.instance_id
            deleted = core.ledger.deleted_since(instance_id, cede.deletions)
            if not (deleted or core.ledger.stands(instance_id)):
                core.ledger.waiting[instance_id] = placement

    def _unite_tokens(self, other: Record | Cede) -> None:
        """Tokens and revocations of another history or a disk."""
        self.append(self._core.ledger.tokens.unheard(other.tokens, other.revoked_tokens))

    def _bury(self, deletions: Iterable[Deletion], standing: Iterable[Placement]) -> None:
        """What was deleted in another history stays deleted, unless it was placed there anew."""
        alive = {one.instance.instance_id for one in standing}
        events, notes = unheard_deletions(self._core.ledger, deletions, alive)
        for note in notes:
            self._core.out.put(Said("warning", note))
        for event in events:
            # As an answered command, which is what makes everybody remember it.
            self.append([event], f"deleted/{event.event_id}", "{}")
