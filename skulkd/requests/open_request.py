"""One generation request that a client waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import uuid4

from skulkd.wire.ids import CommandId, TokenId
from skulkd.worker.task_stream import TaskStream


class OpenRequest:
    """One request, from its arrival to its end."""

    def __init__(self, owner: TokenId | None = None) -> None:
        self.command_id = CommandId(str(uuid4()))
        self.opened_at = time.monotonic()
        self.accepted_at: float | None = None
        """When a runner's node accepted it."""
        self.owner = owner
        self.cancelled = False
        self.unreachable: str | None = None
        """Which node was lost, or did not answer, while this request waited for it."""
        self.loads = 0
        """How often its model was placed for it."""
        self._stream: TaskStream | None = None
        self._on_close: list[Callable[[], object]] = []

    def on_close(self, callback: Callable[[], object]) -> None:
        self._on_close.append(callback)

    async def attach(self, stream: TaskStream) -> TaskStream:
        """The stream that answers this request; closed at once when it was cancelled meanwhile."""
        self._stream = stream
        self.accepted_at = time.monotonic()
        if self.cancelled:
            await stream.aclose()
        return stream

    async def cancel(self) -> None:
        self.cancelled = True
        await self.close()

    async def close(self) -> None:
        """Drop the task unless it has ended."""
        while self._on_close:
            self._on_close.pop()()
        if self._stream is not None:
            await self._stream.aclose()
