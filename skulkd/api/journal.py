"""Events of this node, and the state that comes of everybody's: whoever waits is woken.

`append` hands an event to whoever orders events; what was ordered comes back by `applied`. In a
node that is part of a cluster that is the cluster; without one, events are applied as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from skulkd.cluster.messages import Entry
from skulkd.cluster.replica import Replica
from skulkd.observe.event_log import EventLog
from skulkd.wire.events import Event
from skulkd.wire.state import State


class Journal:
    """The only way by which this node changes the state."""

    def __init__(self, events: EventLog, replica: Replica) -> None:
        self._events = events
        self._replica = replica
        self._listeners: list[Callable[[], None]] = []
        self._order: Callable[[Event], None] = self._apply_here
        self.next_change = asyncio.Event()
        """Set by the next change, once. Take it before looking at the state, then wait for it."""

    def through(self, order: Callable[[Event], None]) -> None:
        """From now on events are ordered elsewhere and come back by `applied`."""
        self._order = order

    def append(self, event: Event) -> None:
        """Fire and forget: in the state at once on a master, in a moment elsewhere."""
        self._order(event)

    def applied(self, state: State, entries: Sequence[Entry]) -> None:
        """These entries were applied; this is the state after them."""
        for entry in entries:
            self._events.append(entry.event)
        self._replica.replace(state)
        self._tell()

    def replaced(self, state: State) -> None:
        """This node has taken over another's state; what led to it is not known here."""
        self._events.restart(state.last_event_applied_idx + 1)
        self._replica.replace(state)
        self._tell()

    def on_change(self, tell: Callable[[], None]) -> None:
        """Have `tell` called after every change."""
        self._listeners.append(tell)

    def _apply_here(self, event: Event) -> None:
        self._replica.apply(event, self._events.append(event))
        self._tell()

    def _tell(self) -> None:
        changed, self.next_change = self.next_change, asyncio.Event()
        changed.set()
        for tell in self._listeners:
            tell()
