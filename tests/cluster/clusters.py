"""Whole cluster parts in one process: real fabrics, real clocks, no HTTP and no machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from skulkd.cluster.cluster import ClusterNode, LocalNode, StateListeners
from skulkd.cluster.commands import Commands
from skulkd.cluster.disk import RecordFile
from skulkd.cluster.fabric import FabricPlan
from skulkd.cluster.handshake import PROTOCOL
from skulkd.cluster.leader import LeaderPolicy
from skulkd.cluster.messages import JournalEntry
from skulkd.cluster.telemetry import Telemetry
from skulkd.settings.tls import TlsFiles
from skulkd.wire.events import Event
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State
from tests.cluster.fabrics import SECRET, free_port, open_fabric

DEADLINE_S = 300.0


class Member:
    """One node."""

    def __init__(
        self,
        name: str,
        home: Path,
        peers: Sequence[str],
        tls: TlsFiles | None = None,
        *,
        version: str = "1.2.3",
        protocol: tuple[int, int] = PROTOCOL,
    ) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.events: list[Event] = []
        self.state = State()
        self.telemetry = Telemetry()
        self.name = name
        plan = FabricPlan(
            node_id=NodeId(f"node-{name}"),
            secret=SECRET,
            namespace="tests",
            listen=self.address,
            home=home / name,
            peers=peers,
            tls=tls,
        )
        me = LocalNode(plan.node_id, name, version, lambda: [self.address], protocol)
        self.file = RecordFile(home / name / "placements.json")
        policy = LeaderPolicy(lambda _: "nothing is planned here")
        changes = StateListeners(self._applied, self._replaced, self._renamed)
        self.cluster = ClusterNode(me, plan, policy, changes, self.telemetry, self.file)
        self.commands = Commands(self.cluster.peers, self.cluster)
        self._running: asyncio.Task[None] | None = None

    @property
    def node_id(self) -> NodeId:
        return self.cluster.core.node_id

    @property
    def leads(self) -> bool:
        return self.cluster.core.role == "leading"

    async def start(self) -> None:
        self.address = await open_fabric(self.cluster.fabric)
        self._running = asyncio.create_task(self.cluster.run())

    async def stop(self) -> None:
        """Leaves the cluster with a good-bye."""
        if self._running is not None:
            await self.cluster.leave()
            await self.crash()

    async def crash(self) -> None:
        """Goes without a word."""
        if self._running is not None:
            await asyncio.to_thread(self.cluster.fabric.close)
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    def _applied(self, state: State, entries: Sequence[JournalEntry]) -> None:
        self.state = state
        self.events += [entry.event for entry in entries]

    def _replaced(self, state: State) -> None:
        self.state = state

    def _renamed(self, name: str) -> None:
        self.name = name


async def until(condition: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - anything may be waited for
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"waited {DEADLINE_S:g} s in vain for: {what}") from None


def agree(members: Sequence[Member]) -> bool:
    """One master, everybody up to date and seen by everybody."""
    cores = [member.cluster.core for member in members]
    return (
        sum(core.role == "leading" for core in cores) == 1
        and len({core.session for core in cores}) == 1
        and all(core.synced and len(core.connected.members) == len(cores) - 1 for core in cores)
    )


@contextlib.asynccontextmanager
async def clusters(
    home: Path, *names: str, tls: Callable[[str], TlsFiles] | None = None
) -> AsyncIterator[list[Member]]:
    """Members of one cluster; the first leads.

    All know each other's addresses: links that gossip loses are dialled again by whole daemons.
    """
    members: list[Member] = []
    try:
        for name in names:
            peers = [earlier.address for earlier in members]
            member = Member(name, home, peers, tls(name) if tls else None)
            members.append(member)
            await member.start()
        await until(lambda: agree(members), "one cluster")
        yield members
    finally:
        for member in members:
            await member.stop()
