"""Real fabrics on loopback inside one test: every node has its own session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from skulkd.cluster.fabric import Fabric, FabricError, FabricPlan
from skulkd.cluster.fabric_peers import FabricPeers
from skulkd.cluster.frames import decode
from skulkd.peers import PeerNode
from skulkd.wire.ids import NodeId

SECRET = "a secret of the tests"
DEADLINE_S = 300.0


_DICE = random.Random(os.getpid())


def free_port() -> int:
    """Below the range from which systems take ports for outgoing connections."""
    while True:
        port = _DICE.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


async def open_fabric(fabric: Fabric) -> str:
    """Open it, on another port if somebody else was faster; where it listens."""
    for _ in range(10):
        try:
            await asyncio.to_thread(fabric.open, asyncio.get_running_loop())
        except FabricError:
            fabric.plan = replace(fabric.plan, listen=f"127.0.0.1:{free_port()}")
        else:
            return fabric.plan.listen
    raise AssertionError("found no free port")


class Node:
    """A fabric with peers on it; membership is simply who appeared."""

    def __init__(self, name: str, home: Path, **plan: object) -> None:
        self.node_id = NodeId(f"node-{name}")
        self.here: dict[NodeId, PeerNode] = {}
        self.heard: list[tuple[NodeId, str, bytes]] = []
        self.changed = asyncio.Event()
        fields: dict[str, object] = {
            "node_id": self.node_id,
            "secret": SECRET,
            "namespace": "tests",
            "listen": f"127.0.0.1:{free_port()}",
            "home": home / name,
            **plan,
        }
        self.fabric = Fabric(FabricPlan(**fields), self)  # type: ignore[arg-type]
        self.peers = FabricPeers(self.node_id, lambda: list(self.here.values()), self.fabric.send)

    @property
    def address(self) -> str:
        return self.fabric.plan.listen

    def appeared(self, node: NodeId) -> None:
        self.here[node] = PeerNode(node, str(node))
        self._tell()

    def vanished(self, node: NodeId) -> None:
        self.here.pop(node, None)
        self.peers.lost(node)
        self.fabric.forget(node)
        self._tell()

    def received(self, node: NodeId, plane: str, body: bytes) -> None:
        if plane == "one":
            kind, head, rest = decode(body)
            if self.peers.received(node, kind, head, rest):
                return
        self.heard.append((node, plane, body))
        self._tell()

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # type: ignore[operator]
                changed = self.changed
                await changed.wait()

    async def sees(self, *nodes: Node) -> None:
        await self.until(lambda: {node.node_id for node in nodes} <= self.here.keys())

    def _tell(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


@contextlib.asynccontextmanager
async def fabrics(home: Path, *names: str, **plan: object) -> AsyncIterator[list[Node]]:
    """Nodes that know the addresses of all before them.

    Gossip would find most of them, but loses a link now and then when two nodes dial each other
    at once; dialling again is the cluster's work, which is not here.
    """
    nodes: list[Node] = []
    try:
        for name in names:
            peers = [earlier.address for earlier in nodes]
            node = Node(name, home, **{"peers": peers, **plan})
            nodes.append(node)
            await open_fabric(node.fabric)
        yield nodes
    finally:
        for node in nodes:
            await node.peers.stop()
            await asyncio.to_thread(node.fabric.close)
