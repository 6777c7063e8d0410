"""Events of this node: into the log, into the replica, and whoever waits for a change is woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from skulkd.cluster.replica import Replica
from skulkd.observe.event_log import EventLog
from skulkd.wire.events import Event


class Journal:
    """The only way by which this node changes its state."""

    def __init__(self, events: EventLog, replica: Replica) -> None:
        self._events = events
        self._replica = replica
        self._listeners: list[Callable[[], None]] = []
        self.next_change = asyncio.Event()
        """Set by the next change, once. Take it before looking at the state, then wait for it."""

    def append(self, event: Event) -> None:
        self._replica.apply(event, self._events.append(event))
        changed, self.next_change = self.next_change, asyncio.Event()
        changed.set()
        for tell in self._listeners:
            tell()

    def on_change(self, tell: Callable[[], None]) -> None:
        """Have `tell` called after every change."""
        self._listeners.append(tell)
