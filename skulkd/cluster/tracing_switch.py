"""The cluster-wide tracing switch: changed by a command, kept in the state and on disk."""

from __future__ import annotations

import json

from skulkd.cluster.commands import Commands
from skulkd.cluster.commits import Decision
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.replica import Replica
from skulkd.wire.events import TracingStateChanged

TRACING = "tracing.set"
DEADLINE_S = 9.0


class TracingSwitch:
    """Whether new requests are traced."""

    def __init__(self, replica: Replica, commands: Commands) -> None:
        self._replica = replica
        self._send = commands.send
        commands.register(TRACING, _decide)

    @property
    def enabled(self) -> bool:
        """As this node knows it."""
        return self._replica.state.tracing_enabled

    async def change(self, *, enabled: bool) -> None:
        """Return when it is in the state of this node. Raises PeerRefused."""
        await self._send(TRACING, json.dumps({"enabled": enabled}).encode(), DEADLINE_S)


def _decide(body: bytes, journal: JournalReplica) -> Decision:
    enabled = bool(json.loads(body)["enabled"])
    if enabled == journal.state.tracing_enabled:
        return Decision([])
    return Decision([TracingStateChanged(enabled=enabled)])
