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
from skulkd.swarm.active_jobs import GatewayDeps
from skulkd.swarm.capabilities import MachineProbe, no_gpu
from skulkd.swarm.catalog import Agent, Exposure, normalize_health
from skulkd.swarm.chat_format import Completion
from skulkd.swarm.claims import Claims
from skulkd.swarm.gateway import Gateway
from skulkd.swarm.job_records import JobRecords
from skulkd.swarm.job_runner import ChatSinks, ChatWork
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.session import GatewaySession
from skulkd.swarm.telemetry import Clocks, Counters, Machine
from tests.peer_mesh import peer_mesh
from tests.swarm.loopback_gateway import LoopbackGateway, loopback_gateway
from tests.swarm.vectors import VECTORS

NODE = "shn_v"
TOKEN = "msn_v"  # the name of a token, worth nothing
START = datetime(2026, 6, 15, tzinfo=UTC)


def an_agent(recorded: Mapping[str, Any]) -> Agent:
    """From a recorded agent of the reference."""
    return Agent(
        recorded["slug"],
        recorded.get("defaultModel"),
        normalize_health(recorded["health"]["status"]),
        adapter=recorded["adapter"],
        context_window=recorded.get("contextWindow"),
        supports_tools=recorded.get("supportsTools", False),
        capabilities=recorded.get("capabilities", []),
        api_key=recorded.get("config", {}).get("apiKey"),
    )


AGENTS = [an_agent(recorded) for recorded in VECTORS["job_agents"]]


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
    works: list[ChatWork] = field(default_factory=list)
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """Jobs wait for it."""

    async def chat(self, work: ChatWork, sinks: ChatSinks) -> Completion:
        self.works.append(work)
        self.gateway.note("RUN")
        if self.gate is not None:
            await self.gate.wait()
        for number in range(self.chunks):
            sinks.emit(f"t{number}")
        if self.throws is not None:
            raise RuntimeError(self.throws)
        return Completion("OUT", 5, 7)

    async def ollama(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.bodies.append(body)
        self.gateway.note("http://ollama/api/chat")
        return {"message": {"content": "ollama says"}, "prompt_eval_count": 3, "eval_count": 2}


@dataclass
class Rig:
    """A session before a loopback gateway."""

    gateway: LoopbackGateway
    executor: ScriptedExecutor
    deps: GatewayDeps
    config: NodeConfig
    client: Gateway
    session: GatewaySession
    clock: TestClock
    sleeps: list[float]
    draining: list[bool]

    def another(self, **changes: Any) -> GatewaySession:
        """A session of the same node; `changes` are of its dependencies."""
        return GatewaySession(replace(self.deps, **changes), self.config, self.client, 1)

    def restarted(self) -> GatewaySession:
        """The same node after its process ended: only what is on disk is left."""
        records = JobRecords(self.deps.records.directory)
        claims = Claims(peer_mesh(NODE)[0], records)
        return self.another(records=records, claims=claims)


def probe() -> MachineProbe:
    return MachineProbe("linux", "x64", no_gpu())


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
    agents: Callable[[], Sequence[Agent]] = lambda: AGENTS,
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
        records = JobRecords(directory / "jobs")
        clocks = clock.clocks()
        deps = GatewayDeps(
            version="0.1.79",
            hostname="box",
            environ={},
            agents=agents,
            executor=executor,
            draining=lambda: draining[0],
            probe=lambda _config: probe(),
            machine=lambda: Machine(2, 1.85, 2**34, 2**33),
            records=records,
            claims=Claims(peers or peer_mesh(NODE)[0], records),
            counters=Counters(clocks.wall),
            clocks=clocks,
            sleep=sleep,
        )
        timeout_s = settings.request_timeout_ms / 1000
        client = Gateway(gateway.base_url, http, timeout_s, lambda: TOKEN)
        session = GatewaySession(deps, settings, client, 1)
        try:
            yield Rig(gateway, executor, deps, settings, client, session, clock, sleeps, draining)
        finally:
            await session.stop(0.0)


@asynccontextmanager
async def running(session: GatewaySession) -> AsyncIterator[None]:
    """The session at work until the block ends."""
    task = asyncio.create_task(session.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await session.stop(0.0)
