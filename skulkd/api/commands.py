"""Requests that are being answered, by command id, so that they can be cancelled."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

from skulkd.api.callers import CALLER
from skulkd.wire.ids import CommandId, TokenId
from skulkd.worker.task_stream import TaskStream


class Command:
    """One request, from its arrival to its end."""

    def __init__(self) -> None:
        self.command_id = CommandId(str(uuid4()))
        self.opened_at = time.monotonic()
        token = CALLER.get().token
        self.owner: TokenId | None = None if token is None else token.token_id
        self.cancelled = False
        self.silent: str | None = None
        """Which node was lost, or did not answer, while this request waited for it."""
        self._stream: TaskStream | None = None
        self._on_close: list[Callable[[], object]] = []

    def on_close(self, tell: Callable[[], object]) -> None:
        """Have `tell` called when the command is over."""
        self._on_close.append(tell)

    async def attach(self, stream: TaskStream) -> TaskStream:
        """The answer has a source now."""
        self._stream = stream
        if self.cancelled:
            await stream.aclose()
        return stream

    async def cancel(self) -> None:
        """End the answer where it is; its runner drops the task."""
        self.cancelled = True
        await self.close()

    async def close(self) -> None:
        """Nobody reads any more: what has not ended is dropped."""
        while self._on_close:
            self._on_close.pop()()
        if self._stream is not None:
            await self._stream.aclose()


class Commands:
    """Those that have no end yet."""

    def __init__(self) -> None:
        self._open: dict[str, Command] = {}

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Command]:
        """A command that is over, and its task with it, when the block ends."""
        command = Command()
        self._open[command.command_id] = command
        try:
            yield command
        finally:
            self._open.pop(command.command_id, None)
            await command.close()

    async def cancel(self, command_id: str, owner: TokenId | None = None) -> bool:
        """False when it is not known here, has ended, or was cancelled before.

        With an `owner`, also when it is not that token's.
        """
        command = self._open.get(command_id)
        if command is None or (owner is not None and command.owner != owner):
            return False
        del self._open[command_id]
        await command.cancel()
        return True
