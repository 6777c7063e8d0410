"""The journal as the rest of the node uses it: append events, read the state, wait for changes.

`ClusterNode` orders and replicates the events and calls `applied` with the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from skulkd.cluster.messages import JournalEntry
from skulkd.cluster.replica import Replica
from skulkd.observe.event_log import EventLog
from skulkd.wire.events import Event
from skulkd.wire.state import State


class Journal:
    """The only way for this node to change the state. `connect` it before the first event."""

    def __init__(self, events: EventLog, replica: Replica) -> None:
        self._events = events
        self._replica = replica
        self._listeners: list[Callable[[], None]] = []
        self._submit: Callable[[Event], None] | None = None
        self.next_change = asyncio.Event()
        """Set once, by the next change. Get it before reading the state, then wait for it."""

    def connect(self, submit: Callable[[Event], None]) -> None:
        """Set the function that submits events for ordering."""
        self._submit = submit

    def append(self, event: Event) -> None:
        """Submit an event without waiting; it is applied at once only on the master."""
        if self._submit is None:
            raise RuntimeError("the journal is not connected to the cluster")
        self._submit(event)

    def applied(self, state: State, entries: Sequence[JournalEntry]) -> None:
        """These entries were applied; this is the state after them."""
        for entry in entries:
            self._events.append(entry.event)
        self._replica.replace(state)
        self._notify()

    def replaced(self, state: State) -> None:
        """The state was replaced by a snapshot; the events before it are not known here."""
        self._events.restart(state.last_event_applied_idx + 1)
        self._replica.replace(state)
        self._notify()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change of the state."""
        self._listeners.append(listener)

    def _notify(self) -> None:
        changed, self.next_change = self.next_change, asyncio.Event()
        changed.set()
        for listener in self._listeners:
            listener()
