"""Builders for gateway nodes in one process: a scripted executor, clocks that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from skulkd.peers import Peers
from skulkd.swarm.capabilities import Probed, no_gpu, no_software
from skulkd.swarm.catalog import Exposure
from skulkd.swarm.claims import Claims
from skulkd.swarm.gateway import Gateway
from skulkd.swarm.job_book import JobBook
from skulkd.swarm.jobs import Clocks, Outcome, Sinks, Work
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.session import Parts, Session
from skulkd.swarm.telemetry import Counters, Machine
from tests.peer_mesh import peer_mesh
from tests.swarm.loopback_gateway import LoopbackGateway, loopback_gateway
from tests.swarm.vectors import VECTORS

NODE = "shn_v"
TOKEN = "msn_v"  # the name of a token, worth nothing
START = datetime(2026, 6, 15, tzinfo=UTC)


class TestClock:
    """Both kinds of time, moved by the test only."""

    __test__ = False

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.wall = START

    def clocks(self) -> Clocks:
        return Clocks(lambda: self.seconds, lambda: self.wall)

    def jump(self, by: timedelta) -> None:
        """The wall clock is set; the other never is."""
        self.wall += by


@dataclass
class ScriptedExecutor:
    """Says what it is told, and notes in the gateway's log that it ran."""

    gateway: LoopbackGateway
    chunks: int = 0
    throws: str | None = None
    works: list[Work] = field(default_factory=list)
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """Jobs wait for it."""

    async def chat(self, work: Work, sinks: Sinks) -> Outcome:
        self.works.append(work)
        self.gateway.note("RUN")
        if self.gate is not None:
            await self.gate.wait()
        for number in range(self.chunks):
            sinks.emit(f"t{number}")
        if self.throws is not None:
            raise RuntimeError(self.throws)
        return Outcome("OUT", 5, 7)

    async def ollama(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.bodies.append(body)
        self.gateway.note("http://ollama/api/chat")
        return {"message": {"content": "ollama says"}, "prompt_eval_count": 3, "eval_count": 2}


@dataclass
class Rig:
    """A session before a loopback gateway."""

    gateway: LoopbackGateway
    executor: ScriptedExecutor
    parts: Parts
    session: Session
    clock: TestClock
    sleeps: list[float]
    draining: list[bool]

    def restarted(self) -> Session:
        """The same node after its process ended: only what is on disk is left."""
        book = JobBook(self.parts.book.directory)
        claims = Claims(peer_mesh(NODE)[0], lambda job_id: not book.may_run(job_id))
        return Session(replace(self.parts, book=book, claims=claims))


def probed() -> Probed:
    return Probed("linux", "x64", no_gpu(), no_software())


def job(job_id: str = "job-1", **changes: Any) -> dict[str, Any]:
    """A job that works."""
    asked = {"model": "pub-model", "messages": [{"role": "user", "content": "hi"}]}
    return {
        "job_id": job_id,
        "request_id": f"req-{job_id}",
        "node_id": NODE,
        "agent_slug": "qwen-local",
        "source_agent_slug": "qwen-local",
        "provider": "mcoda",
        "model": "pub-model",
        "openai_request": asked,
        **changes,
    }


def config(base_url: str, **changes: Any) -> NodeConfig:
    base = NodeConfig(
        gateway_base_url=base_url,
        node_id=NODE,
        server_name="box",
        exposure=Exposure(True, (), VECTORS["job_config"]["modelBlocklist"]),
    )
    return replace(base, **changes)


@asynccontextmanager
async def rig(
    directory: Path,
    agents: Callable[[], Sequence[Mapping[str, Any]]] = lambda: VECTORS["job_agents"],
    peers: Peers | None = None,
    **changes: Any,
) -> AsyncIterator[Rig]:
    """Sleeps last as long as one turn of the loop; `changes` are of the configuration."""
    clock, sleeps, draining = TestClock(), list[float](), [False]

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        await asyncio.sleep(0)

    async with loopback_gateway() as gateway, aiohttp.ClientSession() as http:
        executor = ScriptedExecutor(gateway)
        settings = config(gateway.base_url, **changes)
        book = JobBook(directory / "jobs")
        clocks = clock.clocks()
        parts = Parts(
            config=settings,
            config_version=1,
            version="0.1.79",
            gateway=Gateway(gateway.base_url, http, settings.request_timeout_ms / 1000),
            token=lambda: TOKEN,
            agents=agents,
            executor=executor,
            draining=lambda: draining[0],
            probed=probed,
            machine=lambda: Machine(2, 1.85, 2**34, 2**33),
            book=book,
            claims=Claims(peers or peer_mesh(NODE)[0], lambda job_id: not book.may_run(job_id)),
            counters=Counters(clocks.wall),
            clocks=clocks,
            sleep=sleep,
        )
        session = Session(parts)
        try:
            yield Rig(gateway, executor, parts, session, clock, sleeps, draining)
        finally:
            await session.stop(0.0)


@asynccontextmanager
async def running(session: Session) -> AsyncIterator[None]:
    """The session at work until the block ends."""
    task = asyncio.create_task(session.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await session.stop(0.0)
