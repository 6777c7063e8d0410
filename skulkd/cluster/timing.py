"""Timeouts and intervals of the state machine. Pure: no clock here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from skulkd.cluster.messages import MasterSession

GAP_S = 3.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, for a small cluster; `scaled` adapts them to a large one."""

    heartbeat_s: float = 0.5
    heartbeat_timeout_s: float = 3.0
    seek_s: float = 1.0
    """How long a starting node waits for a master before it becomes a candidate."""
    elect_s: float = 0.3
    first_heartbeat_stagger_s: float = 0.1
    """How much longer than the best candidate the next two wait with their heartbeat."""
    stagger_s: float = 0.6
    """How much longer each next candidate waits before it leads."""
    resend_s: float = 0.4
    silent_s: float = 3.4
    """A master declares a node lost after this long without a heartbeat, even if its connection is
    open. With the interval before and the tick after, that is 4 s after its event loop hung."""
    suspended_s: float = 2.0
    """A node that was suspended for longer than this must look for the master again."""

    def scaled(self, nodes: int) -> Timing:
        factor = max(1.0, nodes / 16)
        return replace(
            self,
            heartbeat_s=self.heartbeat_s * factor,
            heartbeat_timeout_s=self.heartbeat_timeout_s * factor,
            silent_s=self.silent_s * factor,
            elect_s=self.elect_s * factor,
            stagger_s=self.stagger_s * factor,
        )


class RivalMasterTimer:
    """Measures how long a second master has been seen without a pause."""

    def __init__(self) -> None:
        self._session: MasterSession | None = None
        self._since = self._last = 0.0

    def exceeded(self, session: MasterSession, now: float, patience_s: float) -> bool:
        """Whether it has lasted for longer than `patience_s`; restarts the timer then."""
        if session != self._session or now - self._last > GAP_S:
            self._session, self._since = session, now
        self._last = now
        if now - self._since <= patience_s:
            return False
        self._session = None
        return True
