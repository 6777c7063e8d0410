"""Where the daemon is between start and stop, and which requests are open.

The one place that readiness, shutdown and restart are decided; starts nothing itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

HEAR_S = 0.5
"""A connection that says nothing for so long will not be missed."""
_LOOK_S = 0.01
_ABORT_TURNS = 20


class Lifecycle:
    """Readiness by named parts; open requests; the wish to stop or restart."""

    def __init__(self, parts: Iterable[str]) -> None:
        self._waiting_for: dict[str, str] = dict.fromkeys(parts, "not ready yet")
        self.open_requests: set[asyncio.Task[Any]] = set()
        self.unheard: set[object] = set()
        """Connections that were accepted and have not asked anything yet."""
        self.hear_s = HEAR_S
        self.stopping = False
        self.failing_requests = False
        self.restart_pending = False
        self.stop_asked = asyncio.Event()

    def mark_ready(self, part: str) -> None:
        """A part that was awaited, or had failed, works."""
        self._waiting_for.pop(part, None)

    def mark_failed(self, part: str, reason: str) -> None:
        """A part does not work; readiness is lost until it is marked ready again."""
        self._waiting_for[part] = reason

    def why_not_ready(self) -> list[str]:
        """Empty when the daemon can serve."""
        if self.stopping:
            return ["the daemon is shutting down"]
        return [f"{part}: {reason}" for part, reason in self._waiting_for.items()]

    def ask_restart(self) -> bool:
        """False when a restart is already on its way."""
        if self.restart_pending:
            return False
        self.restart_pending = True
        return True

    def ask_stop(self) -> None:
        """Wake whoever waits to stop the daemon."""
        self.stop_asked.set()

    async def drain(self, grace_s: float, abort_s: float) -> int:
        """Let open requests finish; after the grace fail the rest. The number that was failed."""
        self.stopping = True
        await self._hear_all(min(grace_s, self.hear_s))
        if self.open_requests:
            await asyncio.wait(set(self.open_requests), timeout=grace_s)
        late = set(self.open_requests)
        self.failing_requests = True
        for task in late:
            task.cancel()
        await _let_finish(late, abort_s)
        return len(late)

    async def _hear_all(self, patience_s: float) -> None:
        """Who has just connected is about to ask, and is owed an answer like everybody else."""
        ends = time.monotonic() + patience_s
        while self.unheard and time.monotonic() < ends:  # noqa: ASYNC110 - once in a life
            await asyncio.sleep(_LOOK_S)


async def _let_finish(tasks: set[asyncio.Task[Any]], limit_s: float) -> None:
    """Wait for tasks, for so long as the event loop gets to run.

    On a starved machine one turn of the loop may take longer than the limit, so the wait is cut
    into short ones, and each gives every task a turn to write its error.
    """
    for _ in range(_ABORT_TURNS):
        if not tasks:
            return
        _, tasks = await asyncio.wait(tasks, timeout=limit_s / _ABORT_TURNS)
