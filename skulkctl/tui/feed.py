"""Where timelines come from: a daemon that is asked again and again, or a file. No Textual.

Knows how often to ask. It must not know what a timeline means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from skulkctl.errors import CliError
from skulkctl.views.read import Document, sequence, text

if TYPE_CHECKING:
    from skulkctl.contexts import Target
    from skulkctl.daemon.client import Daemon

PATHS = ("/v1/cluster/timeline", "/v1/diagnostics/cluster/timeline")
"""Our own endpoint, and that of a stock node, which says less."""
EVERY_S = 2.0
SLOW_EVERY_S = 5.0
LONGEST_S = 30.0
SLOW_ANSWER_S = 1.0


@dataclass(frozen=True)
class Frame:
    """One timeline, the nodes' names, and when it was received."""

    timeline: Document
    names: Mapping[str, str] = field(default_factory=dict)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class Feed(Protocol):
    """Gives frames; `poll` may take long and raises CliError."""

    live: bool

    def poll(self) -> Frame: ...


class LiveFeed:
    """Asks a daemon. Names are asked for once, and again when an unknown node turns up."""

    live = True

    def __init__(self, target: Target, timeout_s: float, daemon: Daemon) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self.daemon = daemon
        self._names: dict[str, str] = {}
        self._first_seen: dict[str, datetime] = {}

    def poll(self) -> Frame:
        from skulkctl.client import Client
        from skulkctl.stock_timeline import complete_timeline

        # A new client each time: another endpoint of the context may answer meanwhile.
        client = Client(self._target, self._timeout_s)
        timeline = client.get_first(*PATHS)
        if not isinstance(timeline, Mapping):
            raise CliError(f"{client.endpoint} gave no timeline")
        timeline = complete_timeline(client, self.daemon, timeline, self._first_seen)
        if not nodes_of(timeline) <= self._names.keys():
            # A node that is lost keeps its name, which nobody else knows any more.
            state = self.daemon.state()
            self._names |= {node_id: state.node_name(node_id) for node_id in state.node_ids}
        return Frame(timeline, dict(self._names))


def nodes_of(timeline: Document) -> set[str]:
    """Every node that a timeline speaks of."""
    told = (*sequence(timeline, "runners"), *sequence(timeline, "unreachableNodes"))
    return {text(one, "nodeId") or "" for one in told}


class ReplayFeed:
    """Frames of a recording; `step` goes to an earlier or later one."""

    live = False

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = list(frames)
        self._index = 0

    @property
    def position(self) -> str:
        return f"{self._index + 1} of {len(self._frames)}"

    @property
    def count(self) -> int:
        return len(self._frames)

    def poll(self) -> Frame:
        return self._frames[self._index]

    def before(self) -> Frame | None:
        """The frame before the present one, which tells whether anything moved."""
        return self._frames[self._index - 1] if self._index else None

    def step(self, by: int) -> None:
        self._index = min(max(0, self._index + by), len(self._frames) - 1)


@dataclass
class Pacer:
    """How long to wait before the next question: longer when answers are slow or missing."""

    every_s: float = EVERY_S
    _slow: int = 0
    _failures: int = 0

    @property
    def usual_s(self) -> float:
        return max(self.every_s, SLOW_EVERY_S) if self._slow >= 3 else self.every_s

    def answered(self, took_s: float) -> float:
        self._failures = 0
        self._slow = self._slow + 1 if took_s > SLOW_ANSWER_S else 0
        return self.usual_s

    def failed(self) -> float:
        self._failures += 1
        return min(LONGEST_S, self.every_s * 2.0 ** min(self._failures, 8))
