"""Where the screens' frames come from: a daemon that is polled, or a recording. No Textual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from skulkctl.timeline.frames import EVERYTHING, Part

if TYPE_CHECKING:
    from skulkctl.daemon.client import AsyncDaemon
    from skulkctl.timeline.frames import ClusterWatch, Frame

EVERY_S = 2.0
SLOW_EVERY_S = 5.0
LONGEST_S = 30.0
SLOW_ANSWER_S = 1.0


class Feed(Protocol):
    """Gives frames; `poll` may take long and raises CliError. `wanted` is what is looked at."""

    live: bool

    async def poll(self, wanted: frozenset[Part] = EVERYTHING) -> Frame: ...

    async def close(self) -> None: ...


class LiveFeed:
    """Polls a daemon."""

    live = True

    def __init__(self, daemon: AsyncDaemon, watch: ClusterWatch) -> None:
        self._daemon = daemon
        self.watch = watch

    async def poll(self, wanted: frozenset[Part] = EVERYTHING) -> Frame:
        return await self._daemon.run(self.watch.next_frame(wanted))

    async def close(self) -> None:
        await self._daemon.close()


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
    def current(self) -> Frame:
        return self._frames[self._index]

    @property
    def before(self) -> Frame | None:
        """The frame before the current one, which tells whether anything moved."""
        return self._frames[self._index - 1] if self._index else None

    async def poll(self, wanted: frozenset[Part] = EVERYTHING) -> Frame:
        del wanted
        return self.current

    async def close(self) -> None:
        """Nothing is open."""

    def step(self, by: int) -> None:
        self._index = min(max(0, self._index + by), len(self._frames) - 1)


@dataclass
class Pacer:
    """How long to wait before the next poll: longer when answers are slow or missing."""

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
