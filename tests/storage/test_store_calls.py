"""Questions to a store host that accepts connections and answers nothing, like a frozen one."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from skulkd.store.client import store_client as store_calls
from skulkd.store.client.connection import StoreAddress
from skulkd.store.client.store_client import RemoteUploads, StoreClient
from skulkd.store.errors import StoreUnreachableError


@pytest.fixture
def frozen() -> Iterator[StoreClient]:
    """The kernel takes connections for a process that is not run."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        address = StoreAddress("127.0.0.1", server.getsockname()[1], "token")

        async def find() -> StoreAddress:
            return address

        yield StoreClient(find)


async def nothing(_model_id: str) -> None:
    return None


async def stalled() -> AsyncIterator[bytes]:
    yield b"x"
    await asyncio.Event().wait()


ASKED: dict[str, Callable[[StoreClient], Awaitable[object]]] = {
    "health": lambda calls: calls.health(),
    "registry": lambda calls: calls.registry(),
    "card": lambda calls: calls.card("org/model"),
    "delete": lambda calls: calls.delete("org/model"),
    "begin upload": lambda calls: RemoteUploads(calls, nothing).begin(
        "org/model", b"{}", replace=False
    ),
    "upload": lambda calls: RemoteUploads(calls, nothing).write("org/model", "x", 0, stalled()),
}


@pytest.mark.parametrize("ask", [pytest.param(ask, id=name) for name, ask in ASKED.items()])
async def test_a_frozen_store_host_is_given_up(
    frozen: StoreClient,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[StoreClient], Awaitable[object]],
) -> None:
    monkeypatch.setattr(store_calls, "PROBE_S", 0.1)
    with pytest.raises(StoreUnreachableError, match="did not respond within"):
        await ask(frozen)


async def test_questions_to_a_frozen_store_host_leave_the_daemon_its_threads(
    frozen: StoreClient,
) -> None:
    usual_threads = min(32, (os.cpu_count() or 1) + 4)
    waiting = [asyncio.create_task(frozen.registry()) for _ in range(usual_threads + 1)]
    await asyncio.sleep(0)  # until each of them has its thread
    assert await asyncio.to_thread(lambda: "done") == "done"
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
