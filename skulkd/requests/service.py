"""The generation requests that clients of this node wait for, by command id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from skulkd.requests.dispatch import Dispatcher
from skulkd.requests.embedding_params import RequestParams
from skulkd.requests.open_request import OpenRequest
from skulkd.wire.ids import TokenId
from skulkd.worker.task_stream import TaskStream


class Requests:
    """Opens, dispatches and cancels requests."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self._open: dict[str, OpenRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def open(self, owner: TokenId | None = None) -> AsyncIterator[OpenRequest]:
        """A request that ends, and its task with it, when the block ends."""
        request = OpenRequest(owner)
        self._open[request.command_id] = request
        try:
            yield request
        finally:
            self._open.pop(request.command_id, None)
            await request.close()

    async def stream(self, request: OpenRequest, params: RequestParams) -> TaskStream | None:
        """The answer of a ready instance, waiting for one; None when cancelled meanwhile.

        Raises RequestError.
        """
        stream = await self.dispatcher.submit(request, params)
        if stream is None:
            stream = await self.dispatcher.submit_when_ready(request, params)
        return stream

    async def cancel(self, command_id: str, owner: TokenId | None = None) -> bool:
        """False when it is unknown here, has ended, or belongs to another token than `owner`."""
        request = self._open.get(command_id)
        if request is None or (owner is not None and request.owner != owner):
            return False
        del self._open[command_id]
        await request.cancel()
        return True
