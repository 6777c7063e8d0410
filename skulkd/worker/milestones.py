"""Milestones of one runner: the last 32, in rings that cannot push each other out."""

from collections import deque
from itertools import count
from typing import Literal, NamedTuple

from skulkd.wire.diagnostics import RunnerLifecycleMilestone

Ring = Literal["life", "tasks", "routine"]
SIZES: dict[Ring, int] = {"life": 14, "tasks": 12, "routine": 6}

# A runner goes back and forth between these with every request.
_SERVING = frozenset({"RunnerReady", "RunnerRunning"})


class _Noted(NamedTuple):
    number: int
    at: str
    name: str
    detail: str | None


class Milestones:
    """How the runner came here stays visible, however many tasks and tokens followed."""

    def __init__(self) -> None:
        self._numbers = count()
        self._rings: dict[Ring, deque[_Noted]] = {
            ring: deque(maxlen=size) for ring, size in SIZES.items()
        }

    def add(self, at: str, name: str, detail: str | None = None) -> None:
        """Of equal routine ones in a row the newest is kept."""
        which = ring_of(name, detail)
        ring = self._rings[which]
        if which == "routine" and ring and ring[-1][2:] == (name, detail):
            ring.pop()
        ring.append(_Noted(next(self._numbers), at, name, detail))

    def shown(self) -> list[RunnerLifecycleMilestone]:
        """Oldest first."""
        every = sorted(noted for ring in self._rings.values() for noted in ring)
        return [
            RunnerLifecycleMilestone(at=noted.at, name=noted.name, detail=noted.detail)
            for noted in every
        ]


def ring_of(name: str, detail: str | None) -> Ring:
    """Where a milestone belongs: the runner's life, its tasks, or what happens all the time."""
    if name == "event_received" or name.startswith("phase:"):
        return "routine"
    if name == "status_changed":
        return "tasks" if detail in _SERVING else "life"
    return "tasks" if "task" in name or name.startswith(("cancel_", "terminal_")) else "life"
