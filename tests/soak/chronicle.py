"""What was done to a cluster and when, so that a failed soak can be understood and repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.cluster_live.live_node import LiveNode

_LINES = 40


@dataclass(frozen=True, slots=True)
class Down:
    """From just before a node was made to end until just after it was ready again."""

    name: str
    killed: bool
    """Without a chance to say anything to its clients."""
    since: float


@dataclass
class Chronicle:
    """Moments are monotonic seconds; the story counts them from the beginning."""

    seed: int
    began: float = field(default_factory=time.monotonic)
    told: list[tuple[float, str]] = field(default_factory=list)
    _downs: list[tuple[Down, float | None]] = field(default_factory=list)
    _frozen: list[tuple[str, float, float]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, text: str) -> None:
        self.told.append((time.monotonic(), text))

    @contextmanager
    def down(self, *nodes: LiveNode, killed: bool) -> Iterator[None]:
        """Inside the block these nodes are ended and brought back."""
        self.note(f"{'kill' if killed else 'end'} {', '.join(node.name for node in nodes)}")
        begun = time.monotonic()
        with self._lock:
            first = len(self._downs)
            self._downs += [(Down(node.name, killed, begun), None) for node in nodes]
        yield
        with self._lock:
            for at in range(first, first + len(nodes)):
                self._downs[at] = (self._downs[at][0], time.monotonic())
        self.note("ready again")

    @contextmanager
    def frozen(self, node: LiveNode) -> Iterator[None]:
        """Inside the block this node stands still: nobody can be answered by it."""
        begun = time.monotonic()
        yield
        self.note(f"thaw {node.name}")
        with self._lock:
            self._frozen.append((node.name, begun, time.monotonic()))

    def asked_s(self, name: str, since: float, until: float) -> float:
        """How much of this time the node could have answered in."""
        with self._lock:
            still = [
                min(until, thawed) - max(since, begun)
                for frozen, begun, thawed in self._frozen
                if frozen == name and begun < until and thawed > since
            ]
        return until - since - sum(still)

    def downs_of(self, name: str, since: float, until: float) -> list[Down]:
        """When this node was down between two moments."""
        with self._lock:
            return [
                one
                for one, back in self._downs
                if one.name == name and one.since <= until and (back is None or back >= since)
            ]

    def story(self) -> str:
        lines = [f"SKULK_SOAK_SEED={self.seed} repeats these acts:"]
        lines += [f"  {at - self.began:7.2f} s  {text}" for at, text in sorted(self.told)]
        return "\n".join(lines)


@contextmanager
def telling(chronicle: Chronicle, nodes: Sequence[LiveNode]) -> Iterator[None]:
    """A failure inside is told with everything that led to it."""
    try:
        yield
    except BaseException as error:
        error.add_note(chronicle.story())
        for node in nodes:
            said = [line for line in node.said() if " /" not in line][-_LINES:]
            error.add_note("\n".join([f"{node.name}, start {node.starts}, said last:", *said]))
        raise
