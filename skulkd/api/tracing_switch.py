"""The cluster-wide tracing switch: changed by a command, kept in the state and on disk."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from skulkd.api.journal import Journal
from skulkd.api.placing import ToldRefusal
from skulkd.cluster.replica import Replica
from skulkd.peers import PeerRefused
from skulkd.wire.events import Event, TracingStateChanged

TRACING = "tracing.set"
DEADLINE_S = 9.0

Send = Callable[[str, bytes, float], Awaitable[bytes]]


class TracingSwitch:
    """Decides here until it is told to have the master decide."""

    def __init__(self, replica: Replica, journal: Journal) -> None:
        self._replica = replica
        self._journal = journal
        self._send: Send = self._decide_here

    @property
    def enabled(self) -> bool:
        """As this node knows it."""
        return self._replica.state.tracing_enabled

    def through(self, send: Send) -> None:
        """Have the master decide, from now on, wherever it is."""
        self._send = send

    async def change(self, *, enabled: bool) -> None:
        """Return when it is in the state of this node. Raises Refusal."""
        body = json.dumps({"enabled": enabled}).encode()
        try:
            await self._send(TRACING, body, DEADLINE_S)
        except PeerRefused as refused:
            raise ToldRefusal(refused) from refused

    def decide(self, body: bytes, current: bool) -> list[Event]:
        """The events that lead to what was asked for; none when it is so already."""
        enabled = bool(json.loads(body)["enabled"])
        return [] if enabled == current else [TracingStateChanged(enabled=enabled)]

    async def _decide_here(self, _kind: str, body: bytes, _deadline_s: float) -> bytes:
        for event in self.decide(body, self.enabled):
            self._journal.append(event)
        return b"{}"
