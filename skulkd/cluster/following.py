"""Keeping up with a master: ask for what is missing, apply it, send this node's own events.

A part of the state machine in `core.py`: no I/O, no clock of its own. Every question is asked
again until it is answered, and every answer may come twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skulkd.cluster.messages import (
    Cede,
    Entries,
    Entry,
    Join,
    Known,
    Session,
    Snapshot,
    Submit,
    Waiting,
)
from skulkd.cluster.says import Applied, Lost, Replaced, Send
from skulkd.cluster.timing import Timing
from skulkd.wire.events import Event, NodeTimedOut
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkd.cluster.core import Core

SUBMIT_LIMIT = 256
PENDING_LIMIT = 20_000


class Following:
    """The follower's side of a node; asleep while it leads or seeks."""

    def __init__(self, core: Core, timing: Timing) -> None:
        self._core = core
        self._timing = timing
        self._next_join = 0.0
        self._next_submit = 0.0
        self._dirty = False
        self.handed_over: Session | None = None
        """A session of this node whose state the next master has taken over already."""

    def obeys(self, sender: NodeId, session: Session) -> bool:
        """Whether that is this node's master speaking, in the session it follows."""
        core = self._core
        return core.role == "following" and session == core.session and sender == session.master

    def receive(self, sender: NodeId, message: Entries | Snapshot | Waiting | Known) -> None:
        if isinstance(message, Known):
            for event_id in message.event_ids:
                self._core.pending.pop(event_id, None)
        elif self.obeys(sender, message.session):
            match message:
                case Entries():
                    self._on_entries(message)
                case Snapshot():
                    self._on_snapshot(message)
                case Waiting() if self._core.synced:
                    self._core.ledger.take_waiting(message.placements, message.head)
                    self._core.ledger.membership.replace_names(message.members)

    def heard_from(self, node: NodeId) -> None:
        """A node told its readings, so its event loop works again."""
        member = self._core.roster.get(node)
        if member is not None and self._core.ruling is None:
            member.silent = False

    def append(self, event: Event) -> None:
        """Keep it until it is in the journal; the oldest is dropped when there are too many."""
        pending = self._core.pending
        if len(pending) >= PENDING_LIMIT:
            pending.pop(next(iter(pending)))
        pending[event.event_id] = event
        self._dirty = True

    def flush(self) -> None:
        if self._dirty:
            self._submit()

    def tick(self) -> None:
        core = self._core
        if not core.synced and core.now >= self._next_join:
            self.ask(0.0)
        elif core.synced and core.pending and core.now >= self._next_submit:
            self._submit()

    def ask(self, wait_s: float) -> None:
        """Ask to be brought up to date, at most every so often."""
        core = self._core
        if core.session is None or core.now < self._next_join - self._timing.resend_s + wait_s:
            return
        self._next_join = core.now + self._timing.resend_s
        ledger = core.ledger
        held, legacy = self._held(), self._legacy()
        join = Join(core.session, ledger.session, ledger.head, held, core.record, legacy)
        core.out.put(Send(core.session.master, join))

    # What the new master may lack.

    def _shared(self) -> int | None:
        """How far the new master's history is this node's; None when it is another one."""
        core = self._core
        master = core.roster.get(core.session.master) if core.session else None
        beat = master.beat if master is not None else None
        if beat is None or beat.session != core.session:
            return core.ledger.head  # It cannot be said now; the next question may tell.
        known = (one.head for one in beat.ancestors if one.session == core.ledger.session)
        return next(known, None)

    def _left_to_this_node(self) -> bool:
        """Whether nobody else will speak for the master that this node's state is of."""
        before = self._core.ledger.session
        if before is None or before in (self._core.session, self.handed_over):
            return False
        return before.master == self._core.node_id or before.master not in self._core.roster.members

    def _held(self) -> tuple[Entry, ...]:
        """What this node has of a dead master's last words and the new one lacks."""
        core = self._core
        before, shared = core.ledger.session, self._shared()
        if not self._left_to_this_node() or before is None or before.master == core.node_id:
            return ()
        return (core.ledger.since(shared + 1, SUBMIT_LIMIT) or ()) if shared is not None else ()

    def _legacy(self) -> Cede | None:
        """What stands at the end of a history that the new master does not continue.

        A master cedes to the one it meets. One that was lost before it could, or that slept and
        woke among others, leaves it to whoever held its state.
        """
        core = self._core
        ledger, shared = core.ledger, self._shared()
        if not self._left_to_this_node() or ledger.session is None:
            return None
        own = ledger.session.master == core.node_id
        if shared is not None and not (own and ledger.head > shared):
            return None
        return ledger.cede(ledger.session, core.roster.living())

    # What the master says.

    def _on_entries(self, message: Entries) -> None:
        core = self._core
        if message.sync and not core.synced:
            core.ledger.continue_in(message.session, message.lineage, message.ancestors)
            self._in_sync()
        if not core.synced:
            return
        fresh = [entry for entry in message.entries if entry.index > core.ledger.head]
        if fresh and fresh[0].index == core.ledger.head + 1:
            self._apply(fresh)
        if core.ledger.head < message.head:
            self.ask(0.0 if message.sync and fresh else self._timing.resend_s)

    def _on_snapshot(self, message: Snapshot) -> None:
        core = self._core
        if core.synced and message.state.last_event_applied_idx <= core.ledger.head:
            return
        core.ledger.replace(message)
        for event_id in message.recent:
            core.pending.pop(event_id, None)
        core.out.put(Replaced())
        self._in_sync()

    def _in_sync(self) -> None:
        core = self._core
        core.synced = True
        core.record = None
        self._dirty = bool(core.pending)
        self._next_submit = core.now

    def _apply(self, entries: Iterable[Entry]) -> None:
        core = self._core
        applied = list(entries)
        for entry in applied:
            core.ledger.apply(entry)
            core.pending.pop(entry.event.event_id, None)
            event = entry.event
            if isinstance(event, NodeTimedOut) and core.roster.give_up(event.node_id):
                core.out.put(Lost(event.node_id))
        core.out.put(Applied(tuple(applied)))

    def _submit(self) -> None:
        core = self._core
        self._dirty = False
        self._next_submit = core.now + self._timing.resend_s
        if core.session is not None and core.pending:
            events = tuple(core.pending.values())[:SUBMIT_LIMIT]
            core.out.put(Send(core.session.master, Submit(core.session, events)))
