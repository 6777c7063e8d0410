"""Forwards the chunks of a streamed answer to the gateway, in batches of eight or 250 ms.

One call at a time, so order and count are certain. The first refused batch ends forwarding for
the job; chunks that were not accepted are sent with the result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from skulkd.swarm.errors import GatewayError

BATCH = 8
FLUSH_S = 0.25

Chunk = dict[str, Any]
Send = Callable[[list[Chunk]], Awaitable[None]]
log = logging.getLogger(__name__)


class EventForwarder:
    """The chunks of one job. `send` posts one batch; None keeps all for the result."""

    def __init__(self, send: Send | None, flush_s: float = FLUSH_S) -> None:
        self._send = send
        self._flush_s = flush_s
        self._chunks: list[Chunk] = []
        self._accepted = 0
        self._changed = asyncio.Event()
        self._finished = False
        self._task = asyncio.create_task(self._forward()) if send is not None else None

    def add(self, chunk: Chunk) -> None:
        """Never waits, so a slow gateway does not slow the model down."""
        self._chunks.append(chunk)
        self._changed.set()

    async def finish(self) -> list[Chunk]:
        """Send the rest; returns the chunks that the gateway does not have."""
        self._finished = True
        self._changed.set()
        if self._task is not None:
            await self._task
        return self._chunks[self._accepted :]

    def drop(self) -> None:
        """Stop forwarding: the job was cancelled."""
        if self._task is not None:
            self._task.cancel()

    async def _forward(self) -> None:
        while await self._wait_for_batch():
            batch = self._chunks[self._accepted : self._accepted + BATCH]
            try:
                if self._send is not None:
                    await self._send(batch)
            except GatewayError as error:
                log.warning("the gateway refused chunks of a streamed job: %s", error)
                return
            self._accepted += len(batch)

    async def _wait_for_batch(self) -> bool:
        """Whether there is something to send: eight chunks, those of 250 ms, or the rest."""
        await self._wait_until(lambda: self._finished or self._waiting > 0)
        try:
            async with asyncio.timeout(self._flush_s):
                await self._wait_until(lambda: self._finished or self._waiting >= BATCH)
        except TimeoutError:
            return True
        return self._waiting > 0

    @property
    def _waiting(self) -> int:
        return len(self._chunks) - self._accepted

    async def _wait_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._changed.clear()
            await self._changed.wait()
