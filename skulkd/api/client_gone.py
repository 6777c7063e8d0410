"""Work for a client that ends when the client does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from skulkd.api.protocol import ApiProtocol


@contextmanager
def ends_with_client(request: web.Request) -> Iterator[None]:
    """Interrupt the block, with ConnectionResetError, as soon as the connection is lost."""
    protocol, task = request.protocol, asyncio.current_task()
    if not isinstance(protocol, ApiProtocol) or task is None:
        raise TypeError("only for requests of our own server")
    if request.transport is None:
        raise ConnectionResetError("the client has gone")
    gone = False

    def leave() -> None:
        nonlocal gone
        gone = True
        task.cancel()

    protocol.when_gone.add(leave)
    try:
        yield
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        raise ConnectionResetError("the client has gone") from None
    finally:
        protocol.when_gone.discard(leave)
