"""A node of the API in this process that believes in a whole cluster, for tests over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from skulkd.api.services import Services, Timeouts
from skulkd.cluster.telemetry import NodeReadings
from skulkd.store.imports.tiny_model import make_tiny_model
from skulkd.wire.events import NodeGatheredInfo
from skulkd.wire.gathered import NodeNetworkInterfaces
from skulkd.wire.ids import NodeId
from skulkd.wire.links import MeasuredLink
from skulkd.wire.machine import MemoryUsage, NetworkInterfaceInfo, NodeIdentity
from tests.api.in_process import serving, some_services
from tests.placement.builders import memory_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWN = NodeId("node-test")
MODEL = "skulk/tiny-llama"


def some_cluster(home: Path, names: Sequence[str] = ()) -> Services:
    """This node and others of 16 GiB, all linked; the tiny model is here. Nothing is waited for."""
    make_tiny_model(home / "models")
    node = some_services(home)
    node = replace(node, timeouts=Timeouts(placement_s=0))
    everyone = [OWN, *(NodeId(name) for name in names)]
    for index, name in enumerate(everyone):
        address = f"10.0.0.{index + 1}"
        interface = NetworkInterfaceInfo(name="en0", ip_address=address, interface_type="ethernet")
        info = NodeNetworkInterfaces(interfaces=[interface])
        node.journal.append(NodeGatheredInfo(node_id=name, when=NOW, info=info))
    for name in everyone:
        read(node, name, memory_of(16), [other for other in everyone if other != name], everyone)
    return node


def read(
    node: Services,
    name: str,
    memory: MemoryUsage | None,
    links: Sequence[str],
    everyone: Sequence[str],
) -> None:
    """A node reports its memory and whom it reaches."""
    found = [
        MeasuredLink(
            sink=NodeId(sink),
            host=f"10.0.0.{list(everyone).index(sink) + 1}",
            port=52415,
            interface_type="ethernet",
            latency_ms=1.0,
        )
        for sink in links
    ]
    identity = NodeIdentity(friendly_name=f"{name}-name")
    readings = NodeReadings(NOW, memory=memory, identity=identity, links=tuple(found))
    node.telemetry.record(NodeId(name), readings)


class Client:
    """Asks a served node and takes answers apart."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self._session.request(method, self.url + path, json=body) as answer:
            if answer.content_type == "application/x-ndjson":
                return answer.status, [*map(json.loads, (await answer.text()).splitlines())]
            return answer.status, await answer.json()


@asynccontextmanager
async def asked(node: Services) -> AsyncIterator[Client]:
    async with serving(node) as url, aiohttp.ClientSession() as session:
        yield Client(session, url)
