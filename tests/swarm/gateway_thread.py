"""The loopback gateway in a thread of its own, for tests that start real daemons."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.swarm.loopback_gateway import LoopbackGateway, loopback_gateway

DEADLINE_S = 300.0


class GatewayThread:
    """The gateway as another thread sees it: its log may be read, jobs may be offered."""

    def __init__(self, gateway: LoopbackGateway, loop: asyncio.AbstractEventLoop) -> None:
        self.gateway = gateway
        self._loop = loop

    def offer(self, job: dict[str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(self.gateway.offer(job), self._loop).result(DEADLINE_S)

    def count(self, name: str) -> int:
        return self.gateway.names().count(name)

    def result_of(self, job_id: str) -> dict[str, Any] | None:
        taken = [call for call in self.gateway.calls if call.name == "result"]
        found = [call.body for call in taken if call.body["job_id"] == job_id]
        return found[-1] if found else None


@contextmanager
def gateway_thread() -> Iterator[GatewayThread]:
    started, box = threading.Event(), list[GatewayThread]()
    over = asyncio.Event()

    async def serve() -> None:
        async with loopback_gateway() as gateway:
            gateway.hold_polls = True
            box.append(GatewayThread(gateway, asyncio.get_running_loop()))
            started.set()
            await over.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(DEADLINE_S)
    try:
        yield box[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(DEADLINE_S)
        _end(loop)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Polls that are still held are nobody's any more."""

    async def cancel_all() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    try:
        loop.run_until_complete(cancel_all())
    finally:
        loop.close()
