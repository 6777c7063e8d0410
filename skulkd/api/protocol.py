"""aiohttp's connection handler with our manners: JSON for broken HTTP, no noise, deadlines.

Knows nothing of routes. A connection that has not sent a complete request head within
the idle limit is closed, however slowly it dribbles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.web_request import BaseRequest

from skulkd.api import errors

IDLE_LIMIT_S = 20.0
LINGER_S = 2.0

RequestHandler = Callable[[BaseRequest], Awaitable[web.StreamResponse]]
Entry = Callable[[RequestHandler], RequestHandler]

ENTRY: web.AppKey[Entry] = web.AppKey("entry", Callable)  # type: ignore[arg-type]  # only a label
UNHEARD: web.AppKey[set[object]] = web.AppKey("unheard", set)
"""Connections that have not asked anything yet."""

log = logging.getLogger(__name__)


class ApiProtocol(web.RequestHandler):
    """Answers what is not HTTP in the error envelope; a vanished client is no error.

    `app` is the application it belongs to.
    `when_gone` are called once the connection is lost, however the handler passes its time.
    """

    app: web.Application

    def __init__(self, server: web.Server, **options: Any) -> None:
        super().__init__(server, **options)
        self.when_gone: set[Callable[[], object]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.app[UNHEARD].add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.app[UNHEARD].discard(self)
        for tell in tuple(self.when_gone):
            tell()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError) or request.writer.output_size > 0:
            raise ConnectionResetError("the client has gone")
        log.debug("broken request from %s: %s", request.remote, message or exc)
        text = (message or "broken request").partition("\n")[0].rstrip(":")
        answer = errors.answer(status, errors.envelope(status, f"not valid HTTP: {text}"))
        answer.force_close()
        return answer


def own_app(request: web.Request) -> web.Application:
    """The application of a request, also of one that the router has not seen."""
    protocol = request.protocol
    if not isinstance(protocol, ApiProtocol):
        raise TypeError("only for requests of our own server")
    return protocol.app


def protocol_factory(
    runner: web.AppRunner, idle_limit_s: float = IDLE_LIMIT_S
) -> Callable[[], ApiProtocol]:
    """What `loop.create_server` calls for every connection; the runner must be set up."""
    server = runner.server
    if server is None:
        raise RuntimeError("the runner is not set up")
    loop = asyncio.get_running_loop()

    app = runner.app
    server.request_handler = app[ENTRY](server.request_handler)

    def make() -> ApiProtocol:
        protocol = ApiProtocol(
            server,
            loop=loop,
            keepalive_timeout=idle_limit_s,
            lingering_time=LINGER_S,
            # Compressed bodies are refused, so that no stranger makes us unpack anything.
            auto_decompress=False,
        )
        protocol.app = app
        return protocol

    return make
