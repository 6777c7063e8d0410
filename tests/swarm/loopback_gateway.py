"""A gateway on loopback: keeps a log of every call, hands out jobs, and misbehaves on demand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PREFIX = "/v1/swarm/self-hosted/node"
DEADLINE_S = 300.0


@dataclass(frozen=True)
class Call:
    """One call as it came: `name` is poll, start, events, result, heartbeat …"""

    name: str
    path: str
    headers: dict[str, str]
    body: Any
    status: int


@dataclass(frozen=True)
class Fault:
    """How to misbehave: a status with a body, `hang` for ever, or `drop` the connection."""

    status: int = 500
    body: Any = None
    raw: bytes | None = None
    """Sent as it is, instead of the body."""
    hang: bool = False
    drop: bool = False


@dataclass
class LoopbackGateway:
    """`faults[name]` are used up one call at a time; `always[name]` stays."""

    calls: list[Call] = field(default_factory=list)
    jobs: deque[dict[str, Any]] = field(default_factory=deque)
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    always: dict[str, Fault] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    hold_polls: bool = False
    """Empty polls wait for a job as long as they ask for, as a gateway is expected to do."""
    hold_s: float | None = None
    """Hold them for so long instead."""
    open_polls: int = 0
    most_open_polls: int = 0
    base_url: str = ""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _forever: asyncio.Event = field(default_factory=asyncio.Event)

    def names(self) -> list[str]:
        return [call.name for call in self.calls]

    def bodies(self, name: str) -> list[Any]:
        return [call.body for call in self.calls if call.name == name]

    def note(self, name: str) -> None:
        """Something that happened elsewhere, in order with the calls."""
        self.calls.append(Call(name, "", {}, None, 0))

    async def offer(self, job: dict[str, Any], attached_key: str | None = None) -> None:
        async with self._changed:
            key = {} if attached_key is None else {"attached_mswarm_api_key": attached_key}
            self.jobs.append({"job": job, **key})
            self._changed.notify_all()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for a condition, of the log or of anything else."""
        async with asyncio.timeout(DEADLINE_S):
            while not reached():  # noqa: ASYNC110 - the condition may be of anything
                await asyncio.sleep(0.005)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix(PREFIX).strip("/").split("/")[-1]
        body = json.loads(await request.read() or b"null")
        fault = self.faults[name].popleft() if self.faults[name] else self.always.get(name)
        status = fault.status if fault is not None else 200
        if name == "poll" and fault is None:
            answer = await self._job(request, body)
        else:
            answer = self.answers.get(name, {"accepted": True})
            self._log(request, name, body, status)
        if fault is not None:
            return await self._misbehave(request, fault)
        return _json(answer)

    async def _job(self, request: web.Request, body: Any) -> Any:
        self._log(request, "poll", body, 200)
        self.open_polls += 1
        self.most_open_polls = max(self.most_open_polls, self.open_polls)
        try:
            async with self._changed:
                if self.hold_polls:
                    await self._hold(self.hold_s or body["wait_ms"] / 1000)
                return self.jobs.popleft() if self.jobs else {"job": None}
        finally:
            self.open_polls -= 1

    async def _hold(self, seconds: float) -> None:
        # No longer than asked for: who has gone meanwhile must get no job.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait_for(lambda: bool(self.jobs))

    def _log(self, request: web.Request, name: str, body: Any, status: int) -> None:
        headers = {key.lower(): value for key, value in request.headers.items()}
        self.calls.append(Call(name, request.raw_path, headers, body, status))

    async def _misbehave(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        if fault.hang:
            await self._forever.wait()
        if fault.drop and request.transport is not None:
            request.transport.abort()
        if fault.raw is not None:
            return web.Response(body=fault.raw, status=fault.status)
        return _json(fault.body, fault.status)

    def release(self) -> None:
        self._forever.set()


def _json(body: Any, status: int = 200) -> web.Response:
    text = json.dumps(body, separators=(",", ":"))
    return web.Response(text=text, status=status, content_type="application/json")


@asynccontextmanager
async def loopback_gateway() -> AsyncIterator[LoopbackGateway]:
    """A gateway that listens on a port of its own."""
    gateway = LoopbackGateway()
    app = web.Application()
    app.router.add_post("/{path:.*}", gateway.handle)
    # A node that goes away ends its call, so that nothing is handed to nobody.
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    gateway.base_url = f"http://{host}:{port}"
    try:
        yield gateway
    finally:
        gateway.release()
        await runner.cleanup()
