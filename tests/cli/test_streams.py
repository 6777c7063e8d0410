"""Answers and bodies piece by piece, and raw requests, through the typed client."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from pydantic import BaseModel

from skulkctl.contexts import Context, Target
from skulkctl.daemon.answers import Answer, Upload
from skulkctl.daemon.calls import Steps, ask, call, request
from skulkctl.daemon.client import AsyncDaemon, Daemon
from skulkctl.daemon.streams import Lines, Stream, StreamCall
from skulkctl.errors import CliError, DeadlinePassed, Refused, ServerFailed, Unreachable
from tests.cli.stock import HANG, Reply, StockNode, error_body
from tests.cli.test_stock_connections import a_free_port

GUARD_S = 300.0
BREAK = object()
"""Hang up in the middle of the answer."""


@dataclass
class StreamingNode(StockNode):
    """Sends `pieces` at /stream, waits at HANG until it is stopped, and counts what it received."""

    pieces: list[Any] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)
    """Set when a client went away before the end."""
    uploading: threading.Event = field(default_factory=threading.Event)
    """Set when the head of an upload has arrived."""
    received: list[bytes] = field(default_factory=list)
    lengths: list[str | None] = field(default_factory=list)
    conditions: list[str | None] = field(default_factory=list)

    async def _handle(self, request: web.Request) -> web.StreamResponse:  # type: ignore[override]
        if request.path == "/upload":
            return await self._receive(request)
        if request.path != "/stream":
            return await super()._handle(request)
        self.conditions.append(request.headers.get("If-None-Match"))
        response = web.StreamResponse(headers={"ETag": '"one"'})
        await response.prepare(request)
        try:
            for piece in self.pieces:
                if piece is HANG:
                    await asyncio.sleep(GUARD_S)
                elif piece is BREAK:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                else:
                    await response.write(piece)
        except (ConnectionError, asyncio.CancelledError):
            self.hung_up.set()
            raise
        await response.write_eof()
        return response

    async def _receive(self, request: web.Request) -> web.Response:
        self.lengths.append(request.headers.get("Content-Length"))
        self.uploading.set()
        if request.method == "POST":
            return web.json_response(error_body("too large", 413), status=413)
        if request.method == "PATCH":
            await asyncio.sleep(GUARD_S)
        self.received.append(await request.read())
        return web.json_response({"size": len(self.received[-1])})

    def _server(self) -> web.AppRunner:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return web.AppRunner(app, shutdown_timeout=1, handler_cancellation=True)


@pytest.fixture
def node() -> Iterator[StreamingNode]:
    started = StreamingNode()
    started.start()
    yield started
    started.stop()


Connect = Callable[..., Daemon]


@pytest.fixture
def a_daemon() -> Iterator[Connect]:
    opened = []

    def connect(*endpoints: str, limit_s: float | None = None) -> Daemon:
        opened.append(Daemon(Target(Context("lab", endpoints), None), limit_s))
        return opened[-1]

    yield connect
    for daemon in opened:
        daemon.close()


def words(silence_s: float = GUARD_S, *, is_endless: bool = False) -> Steps[StreamCall[str]]:
    """The lines of /stream."""
    yield from ()
    lines = Lines(lambda line: [line.decode()])
    return StreamCall(
        request("GET", "/stream"), lambda head: lines, silence_s, is_endless=is_endless
    )


def test_items_come_one_by_one_however_the_bytes_are_cut(
    node: StreamingNode, a_daemon: Connect
) -> None:
    node.pieces = [b"one\ntw", b"o", b"\n\n", b"three"]
    with a_daemon(node.url).open(words()) as stream:
        assert list(stream) == ["one", "two", "three"]


def test_an_item_is_given_before_the_next_one_was_sent(
    node: StreamingNode, a_daemon: Connect
) -> None:
    node.pieces = [b"one\n", HANG]
    with a_daemon(node.url).open(words()) as stream:
        assert next(iter(stream)) == "one"
    assert node.hung_up.wait(GUARD_S), "closing did not hang up"


def ended(stream: Callable[[], Stream[str]]) -> tuple[str, ...]:
    """Why a stream that hangs was given up, before or after its first item."""
    late = pytest.raises(DeadlinePassed, match="timed out waiting for a response")
    with late as raised, stream() as items:
        list(items)
    return raised.value.why


def test_silence_ends_a_stream(node: StreamingNode, a_daemon: Connect) -> None:
    node.pieces = [b"one\n", HANG]
    daemon = a_daemon(node.url)
    assert ended(lambda: daemon.open(words(0.2))) == (f"{node.url}: nothing received for 0.2s",)


def test_the_total_deadline_ends_a_stream_that_may_be_silent(
    node: StreamingNode, a_daemon: Connect
) -> None:
    node.pieces = [b"one\n", HANG]
    daemon = a_daemon(node.url, limit_s=0.3)
    assert ended(lambda: daemon.open(words())) == (f"{node.url}: not complete within 0.3s",)


def test_an_endless_stream_has_no_total_deadline(node: StreamingNode, a_daemon: Connect) -> None:
    node.pieces = [b"one\n", HANG]
    daemon = a_daemon(node.url, limit_s=0.2)
    assert ended(lambda: daemon.open(words(0.5, is_endless=True))) == (
        f"{node.url}: nothing received for 0.5s",
    )


def test_a_connection_closed_in_the_middle_is_no_end(
    node: StreamingNode, a_daemon: Connect
) -> None:
    node.pieces = [b"one\n", BREAK]
    got: list[str] = []
    with (
        a_daemon(node.url).open(words()) as stream,
        pytest.raises(ServerFailed, match="connection closed mid-response"),
    ):
        got.extend(stream)


def test_a_dead_endpoint_is_passed_over(node: StreamingNode, a_daemon: Connect) -> None:
    node.pieces = [b"one\n"]
    dead = f"http://127.0.0.1:{a_free_port()}"
    daemon = a_daemon(dead, node.url)
    with daemon.open(words()) as stream:
        assert list(stream) == ["one"]
    assert daemon.endpoint == node.url
    with pytest.raises(Unreachable, match="no daemon reachable"):
        a_daemon(dead).open(words())


def test_a_refusal_is_raised_when_the_stream_is_opened(
    node: StreamingNode, a_daemon: Connect
) -> None:
    node.on("GET", "/other", Reply(409, error_body("not now", 409)))

    def other() -> Steps[StreamCall[str]]:
        yield from ()
        lines = Lines(lambda line: [line.decode()])
        return StreamCall(request("GET", "/other"), lambda head: lines, GUARD_S)

    with pytest.raises(Refused) as raised:
        a_daemon(node.url).open(other())
    assert raised.value.why == ("not now",)


def test_ctrl_c_hangs_up(node: StreamingNode, a_daemon: Connect) -> None:
    node.pieces = [b"one\n", HANG]
    press = [threading.get_ident(), signal.SIGINT]
    with pytest.raises(KeyboardInterrupt), a_daemon(node.url).open(words()) as stream:
        for _ in stream:
            threading.Timer(0.1, signal.pthread_kill, press).start()
    assert node.hung_up.wait(GUARD_S)


async def test_the_same_stream_can_be_awaited(node: StreamingNode) -> None:
    node.pieces = [b"one\ntwo", HANG]
    daemon = AsyncDaemon(Target(Context("lab", (node.url,)), None))
    async with await daemon.open(words()) as stream:
        assert await anext(aiter(stream)) == "one"
    assert await asyncio.to_thread(node.hung_up.wait, GUARD_S)
    await daemon.close()


async def test_an_awaited_stream_has_the_same_deadline(node: StreamingNode) -> None:
    node.pieces = [b"one\n", HANG]
    daemon = AsyncDaemon(Target(Context("lab", (node.url,)), None), 0.3)
    with pytest.raises(DeadlinePassed, match="timed out waiting for a response"):
        async with await daemon.open(words()) as stream:
            assert [word async for word in stream] == []
    await daemon.close()


class Size(BaseModel):
    size: int


def sending(
    pieces: Iterator[bytes], length: int, method: str = "PUT", limit_s: float = GUARD_S
) -> Steps[Size]:
    return ask(call(method, "/upload", Size, body=Upload(pieces, length), usual_s=limit_s))


def test_a_body_is_sent_piece_by_piece_with_its_length(
    node: StreamingNode, a_daemon: Connect
) -> None:
    daemon = a_daemon(f"http://127.0.0.1:{a_free_port()}", node.url)
    pieces = [b"a" * 70_000, b"b" * 30_000]
    assert daemon.run(sending(iter(pieces), 100_000)).size == 100_000
    assert (node.received, node.lengths) == ([b"".join(pieces)], ["100000"])
    assert daemon.sent_change


def test_a_refusal_during_an_upload_is_told(node: StreamingNode, a_daemon: Connect) -> None:
    endless = (b"x" * 65536 for _ in range(10_000))
    with pytest.raises(CliError) as raised:
        a_daemon(node.url).run(sending(endless, 65536 * 10_000, "POST"))
    assert (type(raised.value), raised.value.why) == (Refused, ("too large",))


def test_an_upload_that_nobody_takes_ends(node: StreamingNode, a_daemon: Connect) -> None:
    pieces = (b"x" * 65536 for _ in range(10_000))
    with pytest.raises(ServerFailed, match="connection closed during the upload"):
        a_daemon(node.url).run(sending(pieces, 65536 * 10_000, "PATCH", 0.3))


def test_an_error_of_the_source_of_an_upload_is_the_callers(
    node: StreamingNode, a_daemon: Connect
) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x"
        # A server that is stopped while it accepts a connection leaves it open.
        assert node.uploading.wait(GUARD_S)
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        a_daemon(node.url).run(sending(pieces(), 100))


async def test_an_upload_can_be_awaited(node: StreamingNode) -> None:
    daemon = AsyncDaemon(Target(Context("lab", (node.url,)), None))
    assert (await daemon.run(sending(iter([b"abc"]), 3))).size == 3
    await daemon.close()


def test_a_raw_request_gives_the_answer_as_it_came(node: StreamingNode, a_daemon: Connect) -> None:
    node.on("POST", "/any", Reply(418, "no coffee", text=True))
    answer: Answer = a_daemon(node.url).send("POST", "/any", b"{}")
    assert (answer.status, answer.body, node.seen[-1].body) == (418, b"no coffee", b"{}")


def test_a_stream_is_not_kept_for_later(node: StreamingNode, a_daemon: Connect) -> None:
    node.pieces = [b"one\n"]
    daemon = a_daemon(node.url)
    for _ in range(2):
        with daemon.open(words()) as stream:
            assert list(stream) == ["one"]
    assert node.conditions == [None, None]
