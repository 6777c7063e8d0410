"""How long the state machine waits for what. Pure: no clock here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from skulkd.cluster.messages import Session

GAP_S = 3.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, for a small cluster; a large one takes its time, see `scaled`."""

    beat_s: float = 0.5
    beat_timeout_s: float = 3.0
    seek_s: float = 1.0
    """How long a starting node listens for a master before it wants to be one."""
    elect_s: float = 0.3
    hush_s: float = 0.1
    """How much longer than the likeliest successor the next two wait before they speak."""
    stagger_s: float = 0.6
    """The next best node waits so much longer for the best one to lead."""
    resend_s: float = 0.4
    silent_s: float = 3.4
    """After so long without a beat a master counts a node as lost, even if its sockets live: with
    the beat before it and the tick after it, four seconds after its event loop began to hang."""
    still_s: float = 2.0
    """A node that was not run for so long must not believe what it remembers."""

    def scaled(self, nodes: int) -> Timing:
        factor = max(1.0, nodes / 16)
        return replace(
            self,
            beat_s=self.beat_s * factor,
            beat_timeout_s=self.beat_timeout_s * factor,
            silent_s=self.silent_s * factor,
            elect_s=self.elect_s * factor,
            stagger_s=self.stagger_s * factor,
        )


class Doubt:
    """How long another session has been heard of beside one's own, without a pause."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._since = self._last = 0.0

    def lasts(self, session: Session, now: float, patience_s: float) -> bool:
        """Whether it has gone on for longer than that; it begins anew then."""
        if session != self._session or now - self._last > GAP_S:
            self._session, self._since = session, now
        self._last = now
        if now - self._since <= patience_s:
            return False
        self._session = None
        return True
