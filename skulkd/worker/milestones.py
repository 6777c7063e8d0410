"""Milestones of one runner: the last 32, in rings that cannot push each other out."""

from collections import deque
from itertools import count
from typing import Literal

from skulkd.wire.diagnostics import RunnerLifecycleMilestone

Ring = Literal["life", "tasks", "routine"]
SIZES: dict[Ring, int] = {"life": 14, "tasks": 12, "routine": 6}

# A runner goes back and forth between these with every request.
_SERVING = frozenset({"RunnerReady", "RunnerRunning"})


class Milestones:
    """How the runner came here stays visible, however many tasks and tokens followed."""

    def __init__(self) -> None:
        self._numbers = count()
        self._rings: dict[Ring, deque[tuple[int, RunnerLifecycleMilestone]]] = {
            ring: deque(maxlen=size) for ring, size in SIZES.items()
        }

    def add(self, at: str, name: str, detail: str | None = None) -> None:
        """Of equal routine ones in a row the newest is kept."""
        milestone = RunnerLifecycleMilestone(at=at, name=name, detail=detail)
        which = ring_of(name, detail)
        ring = self._rings[which]
        if which == "routine" and ring and (ring[-1][1].name, ring[-1][1].detail) == (name, detail):
            ring.pop()
        ring.append((next(self._numbers), milestone))

    def shown(self) -> list[RunnerLifecycleMilestone]:
        """Oldest first."""
        every = [pair for ring in self._rings.values() for pair in ring]
        return [milestone for _, milestone in sorted(every, key=lambda pair: pair[0])]


def ring_of(name: str, detail: str | None) -> Ring:
    """Where a milestone belongs: the runner's life, its tasks, or what happens all the time."""
    if name == "event_received" or name.startswith("phase:"):
        return "routine"
    if name == "status_changed":
        return "tasks" if detail in _SERVING else "life"
    return "tasks" if "task" in name or name.startswith(("cancel_", "terminal_")) else "life"
