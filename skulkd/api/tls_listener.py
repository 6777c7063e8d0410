"""Accepting TLS connections, and telling a client that speaks plain HTTP to use https://.

A connection is looked at before it is read: the first byte of TLS is never one of HTTP. Knows
nothing of routes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from skulkd.api import errors
from skulkd.api.listen import BACKLOG

HANDSHAKE_S = 20.0
GOODBYE_S = 2.0
# What is wrong is usually the number of open files, and somebody closes one soon.
PAUSE_S = 1.0
NEEDS_TLS = "tls_required"
_HANDSHAKE_RECORD = b"\x16"
_PIECE = 65536

log = logging.getLogger(__name__)


class TlsListener:
    """Serves one listening socket. `pending` holds connections that have not asked anything yet."""

    def __init__(
        self,
        sock: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        pending: set[object],
    ) -> None:
        self._sock = sock
        self._factory = factory
        self._context = context
        self._pending = pending
        self._loop = asyncio.get_running_loop()
        self._greetings: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._loop.add_reader(sock, self._accept)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return () if self._sock.fileno() < 0 else (self._sock,)

    def close(self) -> None:
        """Accept nobody any more; who is connected stays."""
        if self._resuming is not None:
            self._resuming.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                client, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept connections for a moment: %s", error.strerror or error)
                self._loop.remove_reader(self._sock)
                self._resuming = self._loop.call_later(PAUSE_S, self._resume)
                return
            client.setblocking(False)
            task = self._loop.create_task(self._greet(client))
            self._greetings.add(task)
            task.add_done_callback(self._greetings.discard)

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._sock, self._accept)

    async def _greet(self, client: socket.socket) -> None:
        self._pending.add(client)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                first = await self._peek(client)
            if first == _HANDSHAKE_RECORD:
                await self._loop.connect_accepted_socket(
                    self._factory,
                    client,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=GOODBYE_S,
                )
                return
            if first:
                async with asyncio.timeout(GOODBYE_S):
                    await self._refuse(client)
            client.close()
        except (OSError, TimeoutError) as error:
            log.debug("no TLS connection: %s", error or type(error).__name__)
            client.close()
        except asyncio.CancelledError:
            client.close()
            raise
        finally:
            self._pending.discard(client)

    async def _peek(self, client: socket.socket) -> bytes:
        """The first byte, which stays to be read; empty when the client has gone."""
        while True:
            try:
                return client.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                await self._readable(client)

    async def _readable(self, client: socket.socket) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        number = client.fileno()
        self._loop.add_reader(number, _finish, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(number)

    async def _refuse(self, client: socket.socket) -> None:
        """Answer, and read until the client hangs up: a reset could overtake the answer."""
        await self._loop.sock_sendall(client, plain_answer())
        client.shutdown(socket.SHUT_WR)
        while await self._loop.sock_recv(client, _PIECE):
            continue


def _finish(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def plain_answer() -> bytes:
    """The whole HTTP answer to a request that is not encrypted."""
    body = errors.envelope(
        400, "this port speaks TLS only: use https:// instead of http://", {"kind": NEEDS_TLS}
    )
    head = (
        f"HTTP/1.1 400 {errors.phrase(400)}\r\n"
        f"Content-Type: {errors.JSON_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Server: {errors.SERVER}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
