"""Server-sent events: the text of frames, and an answer made of them that stays alive.

Knows no API family. Whoever does not read loses the connection, nobody else waits.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from skulkd.api.streams import open_stream, write_deadline

KEEP_ALIVE = ": keep-alive\n\n"
DONE = "data: [DONE]\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "Connection": "close",
    "X-Accel-Buffering": "no",
}

# Some clients take these for the end of a line; in JSON they only occur inside texts.
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})

to_json: Callable[[object], str] = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
).encode


def one_line(json_text: str) -> str:
    """The same JSON without a character that may end a line."""
    return json_text if json_text.isascii() else json_text.translate(_LINE_ENDS)


def data(json_text: str) -> str:
    """A frame that clients see."""
    return f"data: {one_line(json_text)}\n\n"


def comment(name: str, text: str) -> str:
    """A frame that clients may ignore."""
    return f": {name} {one_line(text)}\n\n"


class EventStream:
    """An answer that has begun. `write` takes whole frames."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, write_deadline_s: float
    ) -> None:
        self._request = request
        self._write_deadline_s = write_deadline_s
        self._writing = False
        self.response = response
        self.written_at = time.monotonic()

    async def write(self, frames: str) -> None:
        """Raises ConnectionError when the client is gone, or too slow and cut off."""
        self._writing = True
        async with write_deadline(self._request, self._write_deadline_s):
            await self.response.write(frames.encode())
        self._writing = False
        self.written_at = time.monotonic()

    async def finish(self) -> None:
        """End the answer properly. Raises ConnectionError like `write`."""
        async with write_deadline(self._request, self._write_deadline_s):
            await self.response.write_eof()

    async def keep_alive(self, frame: str, interval_s: float) -> None:
        """Write the frame whenever nothing was written for so long; until cancelled."""
        while True:
            silent_s = time.monotonic() - self.written_at
            if silent_s >= interval_s and not self._writing:
                await self.write(frame)
            await asyncio.sleep(max(interval_s - silent_s, interval_s / 10))


def event(name: str, json_text: str) -> str:
    """A frame with a name, which clients tell apart by it."""
    return f"event: {name}\n{data(json_text)}"


@asynccontextmanager
async def open_event_stream(
    request: web.Request,
    *,
    keep_alive_s: float,
    write_deadline_s: float,
    headers: Mapping[str, str] = HEADERS,
    keep_alive: str | None = KEEP_ALIVE,
) -> AsyncIterator[EventStream]:
    """A 200 whose head is sent; `keep_alive` is written in silence until the block ends."""
    response = await open_stream(request, headers)
    response.force_close()
    stream = EventStream(request, response, write_deadline_s)
    if keep_alive is None:
        yield stream
        return
    heart = asyncio.create_task(stream.keep_alive(keep_alive, keep_alive_s))
    try:
        yield stream
    finally:
        heart.cancel()
        # A client that is gone ends the heart too; whoever writes next learns of it.
        await asyncio.gather(heart, return_exceptions=True)
