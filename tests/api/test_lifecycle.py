"""Readiness, background tasks, and clients that do not read their answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from pathlib import Path

import aiohttp
import psutil
import pytest
from aiohttp import web

from skulkd.api.lifecycle import Lifecycle
from skulkd.api.listen import stop_listening
from skulkd.api.routes import RouteTable
from skulkd.api.streams import open_stream, send, write_deadline
from tests.api.in_process import serving, some_services
from tests.daemon_process import wait_until


def test_a_daemon_is_ready_when_every_part_is() -> None:
    lifecycle = Lifecycle(("readings", "listener"))
    lifecycle.mark_ready("listener")
    assert lifecycle.why_not_ready() == ["readings: not ready yet"]
    lifecycle.mark_ready("readings")
    assert lifecycle.why_not_ready() == []
    lifecycle.mark_failed("readings", "gone")
    assert lifecycle.why_not_ready() == ["readings: gone"]


def test_only_the_first_restart_is_accepted() -> None:
    lifecycle = Lifecycle(())
    assert lifecycle.ask_restart()
    assert not lifecycle.ask_restart()


async def test_a_request_gets_turns_to_fail_in_order_on_a_starved_machine() -> None:
    lifecycle = Lifecycle(())
    written: list[str] = []

    async def answer() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for part in ("head", "error", "end"):
                time.sleep(0.05)  # noqa: ASYNC251 - a loop that hardly runs
                await asyncio.sleep(0)
                written.append(part)

    lifecycle.open_requests.add(asyncio.create_task(answer()))
    await asyncio.sleep(0)
    assert await lifecycle.drain(grace_s=0.0, abort_s=0.02) == 1
    assert written == ["head", "error", "end"]


async def test_a_daemon_not_ready_yet_says_what_it_waits_for(tmp_path: Path) -> None:
    node = some_services(tmp_path)
    node.lifecycle.mark_failed("readings", "not ready yet")
    async with serving(node) as url, aiohttp.ClientSession() as client:
        async with client.get(f"{url}/readyz") as answer:
            assert answer.status == 503
            assert "readings: not ready yet" in (await answer.json())["error"]["message"]
        async with client.get(f"{url}/healthz") as answer:
            assert answer.status == 200


async def test_a_stop_waits_for_the_question_of_a_client_that_is_connected(tmp_path: Path) -> None:
    node = some_services(tmp_path)
    lifecycle = node.lifecycle
    lifecycle.hear_s = 120
    async with serving(node) as url, asyncio.timeout(300):
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        while not lifecycle.unheard:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        stopping = asyncio.create_task(lifecycle.drain(120, 120))
        await asyncio.sleep(0.1)
        assert not stopping.done()
        writer.write(b"GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 503 " in head
        assert b"\r\nRetry-After: 1\r\n" in head
        assert await stopping == 0
        writer.close()


async def test_clients_that_wait_to_be_accepted_are_not_turned_away() -> None:
    taken = 0

    class Take(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal taken
            taken += 1
            transport.close()

    server = await asyncio.get_running_loop().create_server(Take, "127.0.0.1", 0)
    where = server.sockets[0].getsockname()
    # The kernel connects them; this loop has not run since.
    clients = [socket.create_connection(where) for _ in range(20)]
    await stop_listening([server])
    async with asyncio.timeout(300):
        while taken < len(clients):  # noqa: ASYNC110
            await asyncio.sleep(0)
    for client in clients:
        client.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where)


async def test_a_client_that_does_not_read_its_stream_is_dropped(tmp_path: Path) -> None:
    routes = RouteTable("test")
    dropped = asyncio.get_running_loop().create_future()

    @routes.get("/flood", scope="read", summary="s", answer=str)
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                async with write_deadline(request, 0.2):
                    await response.write(b"x" * 65536)
        except ConnectionResetError as error:
            dropped.set_result(str(error))
            raise

    async with serving(some_services(tmp_path), routes) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 20) as client:
            client.sendall(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert "does not read" in await asyncio.wait_for(dropped, 300)

            def is_released() -> bool:
                """The client still holds its end; the daemon must not wait for it."""
                return not any(
                    connection.laddr.port == int(port)
                    and connection.status == psutil.CONN_ESTABLISHED
                    for connection in psutil.Process().net_connections("tcp")
                )

            await asyncio.to_thread(wait_until, is_released, "the daemon to let go")


async def test_an_answer_that_fails_half_way_is_broken_off_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    routes = RouteTable("test")

    @routes.get("/half", scope="read", summary="s", answer=str)
    async def half(request: web.Request) -> web.StreamResponse:
        response = await open_stream(request, {"Content-Type": "application/json"})
        await response.write(b'["one",')
        raise ZeroDivisionError("in the middle")

    async with serving(some_services(tmp_path), routes) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /half HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while part := await asyncio.wait_for(reader.read(65536), 300):
                heard += part
        writer.close()
    assert heard.count(b"HTTP/1.1") <= 1
    assert b"0\r\n\r\n" not in heard
    assert "GET /half broke off" in caplog.text
    assert "in the middle" in caplog.text


async def test_a_large_answer_arrives_whole(tmp_path: Path) -> None:
    routes = RouteTable("test")
    text = "äx" * 3_000_000

    @routes.get("/large", scope="read", summary="s", answer=str)
    async def large(request: web.Request) -> web.StreamResponse:
        return await send(request, json.dumps(text, ensure_ascii=False).encode())

    async with (
        serving(some_services(tmp_path), routes) as url,
        aiohttp.ClientSession() as client,
        client.get(f"{url}/large") as answer,
    ):
        assert answer.headers["X-Request-Id"]
        assert await answer.json() == text
