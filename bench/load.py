"""A load generator that costs less than the servers it measures: raw HTTP/1.1 over asyncio."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

CONNECTIONS = 16


class _Loop(asyncio.Protocol):
    """Sends one request, waits for the whole answer, sends the next."""

    def __init__(self, request: bytes, ends_at: float) -> None:
        self.request = request
        self.ends_at = ends_at
        self.answers = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = b""
        self._missing = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._missing < 0:
            head, separator, rest = self._buffer.partition(b"\r\n\r\n")
            if not separator:
                return
            if not head.startswith(b"HTTP/1.1 200"):
                self._fail(ValueError(f"unexpected answer: {head[:80]!r}"))
                return
            self._missing = _content_length(head)
            self._buffer = rest
        if len(self._buffer) < self._missing:
            return
        self._buffer, self._missing = b"", -1
        self.answers += 1
        if time.monotonic() < self.ends_at:
            self._transport.write(self.request)
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _fail(self, error: Exception) -> None:
        self.done.set_exception(error)
        self._transport.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    raise ValueError("answer without Content-Length")


async def _drive(url: str, seconds: float) -> float:
    parts = urlsplit(url)
    request = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    clients = [_Loop(request, started + seconds) for _ in range(CONNECTIONS)]
    for client in clients:
        await loop.create_connection(lambda c=client: c, parts.hostname, parts.port)  # type: ignore[misc]
    await asyncio.wait_for(asyncio.gather(*(client.done for client in clients)), seconds + 30)
    return sum(client.answers for client in clients) / (time.monotonic() - started)


def requests_per_second(url: str, seconds: float = 1.5) -> float:
    """Answered requests per second from one URL over 16 kept-alive connections."""
    return asyncio.run(_drive(url, seconds))
