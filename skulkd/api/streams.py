"""Answers that are written piece by piece, with the headers every answer has.

Knows no route. A reader who stops reading loses the connection, not the daemon its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import hdrs, web

from skulkd.api.auth import cors_headers
from skulkd.api.errors import JSON_TYPE, NO_HEADERS, SERVER
from skulkd.api.services import services
from skulkd.log import REQUEST_ID

REQUEST_ID_HEADER = "X-Request-Id"
SMALL_BYTES = 64 * 1024
WRITE_DEADLINE_S = 30.0


async def send(
    request: web.Request,
    body: bytes,
    content_type: str = JSON_TYPE,
    headers: Mapping[str, str] = NO_HEADERS,
) -> web.StreamResponse:
    """Ready bytes of any size. A small answer fits the socket's buffer and is not waited for."""
    own = {"Content-Type": content_type, "Server": SERVER, **headers}
    if len(body) < SMALL_BYTES:
        return web.Response(body=body, headers=own)
    response = await open_stream(request, {**own, "Content-Length": str(len(body))})
    async with write_deadline(request):
        await response.write(body)
        await response.write_eof()
    return response


async def open_stream(request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
    """A 200 whose head is sent; what follows goes through `write`, within a `write_deadline`."""
    origin = request.headers.get(hdrs.ORIGIN)
    response = web.StreamResponse(
        headers={
            "Server": SERVER,
            REQUEST_ID_HEADER: REQUEST_ID.get() or "",
            **cors_headers(origin, services(request).access.policy),
            **headers,
        }
    )
    await response.prepare(request)
    return response


@asynccontextmanager
async def write_deadline(
    request: web.Request, seconds: float = WRITE_DEADLINE_S
) -> AsyncIterator[None]:
    """Drop the connection when its client takes longer to read what is written here."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        # A plain close would wait for the reader to take what is buffered.
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not read its answer") from None
