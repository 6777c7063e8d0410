"""The follower: requests missing entries, applies them, submits this node's own events.

A part of the state machine in `core.py`: no I/O, no clock of its own. Requests are repeated until
they are answered, so every answer may arrive twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skulkd.cluster.actions import EntriesApplied, NodeGone, Send, StateReplaced
from skulkd.cluster.messages import (
    AlreadyOrdered,
    Entries,
    HandOver,
    Join,
    JournalEntry,
    JournalSnapshot,
    MasterSession,
    Submit,
    UnplacedList,
)
from skulkd.cluster.timing import Timing
from skulkd.wire.events import Event, NodeTimedOut
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkd.cluster.core import Core

SUBMIT_LIMIT = 256
PENDING_LIMIT = 20_000


class Follower:
    """Used only while the node is following."""

    def __init__(self, core: Core, timing: Timing) -> None:
        self._core = core
        self._timing = timing
        self._next_join = 0.0
        self._next_submit = 0.0
        self._dirty = False
        self.handed_over: MasterSession | None = None
        """A session of this node whose state the next master has adopted already."""

    def is_from_master(self, sender: NodeId, session: MasterSession) -> bool:
        """Whether the sender is this node's master, in the session that it follows."""
        core = self._core
        return core.role == "following" and session == core.session and sender == session.master

    def receive(
        self, sender: NodeId, message: Entries | JournalSnapshot | UnplacedList | AlreadyOrdered
    ) -> None:
        if isinstance(message, AlreadyOrdered):
            for event_id in message.event_ids:
                self._core.pending.pop(event_id, None)
        elif self.is_from_master(sender, message.session):
            match message:
                case Entries():
                    self._on_entries(message)
                case JournalSnapshot():
                    self._on_snapshot(message)
                case UnplacedList() if self._core.synced:
                    self._core.journal.set_unplaced(message.placements, message.head)
                    self._core.journal.membership.replace_names(message.members)

    def heard_from(self, node: NodeId) -> None:
        """A node published readings, so its event loop works again."""
        member = self._core.connected.get(node)
        if member is not None and self._core.leader is None:
            member.silent = False

    def append(self, event: Event) -> None:
        """Keep the event until it is in the journal; beyond the limit the oldest is dropped."""
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
            self.request_sync(0.0)
        elif core.synced and core.pending and core.now >= self._next_submit:
            self._submit()

    def request_sync(self, wait_s: float) -> None:
        """Ask the master for missing entries, unless that was done less than `wait_s` ago."""
        core = self._core
        if core.session is None or core.now < self._next_join - self._timing.resend_s + wait_s:
            return
        self._next_join = core.now + self._timing.resend_s
        journal = core.journal
        held, legacy = self._entries_master_lacks(), self._orphaned_history()
        join = Join(core.session, journal.session, journal.head, held, core.record, legacy)
        core.out.put(Send(core.session.master, join))

    # What a new master may lack.

    def _shared(self) -> int | None:
        """The last index that both histories share; None when they share nothing."""
        core = self._core
        master = core.connected.get(core.session.master) if core.session else None
        heartbeat = master.heartbeat if master is not None else None
        if heartbeat is None or heartbeat.session != core.session:
            return core.journal.head  # Not known yet; the next request may know.
        known = (one.head for one in heartbeat.ancestors if one.session == core.journal.session)
        return next(known, None)

    def _previous_master_gone(self) -> bool:
        """Whether the previous master is gone, so that this node has to hand over its state."""
        before = self._core.journal.session
        if before is None or before in (self._core.session, self.handed_over):
            return False
        return (
            before.master == self._core.node_id or before.master not in self._core.connected.members
        )

    def _entries_master_lacks(self) -> tuple[JournalEntry, ...]:
        """Last entries of a lost master that the new one does not have."""
        core = self._core
        before, shared = core.journal.session, self._shared()
        if not self._previous_master_gone() or before is None or before.master == core.node_id:
            return ()
        return (core.journal.since(shared + 1, SUBMIT_LIMIT) or ()) if shared is not None else ()

    def _orphaned_history(self) -> HandOver | None:
        """The state of a history that the new master does not continue.

        Usually a master hands over to another master itself. When it was lost before, or was
        suspended meanwhile, the nodes that hold its state do that with their Join.
        """
        core = self._core
        journal, shared = core.journal, self._shared()
        if not self._previous_master_gone() or journal.session is None:
            return None
        own = journal.session.master == core.node_id
        if shared is not None and not (own and journal.head > shared):
            return None
        return journal.hand_over(journal.session, core.connected.alive())

    # Messages of the master.

    def _on_entries(self, message: Entries) -> None:
        core = self._core
        if message.sync and not core.synced:
            core.journal.switch_session(message.session, message.lineage, message.ancestors)
            self._mark_synced()
        if not core.synced:
            return
        fresh = [entry for entry in message.entries if entry.index > core.journal.head]
        if fresh and fresh[0].index == core.journal.head + 1:
            self._apply(fresh)
        if core.journal.head < message.head:
            self.request_sync(0.0 if message.sync and fresh else self._timing.resend_s)

    def _on_snapshot(self, message: JournalSnapshot) -> None:
        core = self._core
        if core.synced and message.state.last_event_applied_idx <= core.journal.head:
            return
        core.journal.replace(message)
        for event_id in message.recent:
            core.pending.pop(event_id, None)
        core.out.put(StateReplaced())
        self._mark_synced()

    def _mark_synced(self) -> None:
        core = self._core
        core.synced = True
        core.record = None
        self._dirty = bool(core.pending)
        self._next_submit = core.now

    def _apply(self, entries: Iterable[JournalEntry]) -> None:
        core = self._core
        applied = list(entries)
        for entry in applied:
            core.journal.apply(entry)
            core.pending.pop(entry.event.event_id, None)
            event = entry.event
            if isinstance(event, NodeTimedOut) and core.connected.mark_silent(event.node_id):
                core.out.put(NodeGone(event.node_id))
        core.out.put(EntriesApplied(tuple(applied)))

    def _submit(self) -> None:
        core = self._core
        self._dirty = False
        self._next_submit = core.now + self._timing.resend_s
        if core.session is not None and core.pending:
            events = tuple(core.pending.values())[:SUBMIT_LIMIT]
            core.out.put(Send(core.session.master, Submit(core.session, events)))
