"""Which addresses of other nodes answer, tried on real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from skulkd.cluster.reachability import MISSES, ROUND_S, Reachability, api_addresses, try_address
from skulkd.cluster.topology import with_links
from skulkd.wire.ids import NodeId
from skulkd.wire.links import ApiAddress, MeasuredLink
from skulkd.wire.machine import NetworkInterfaceInfo, NodeNetworkInfo
from skulkd.wire.topology import Topology
from tests.api.in_process import serving, some_services
from tests.peer_mesh import peer_mesh

A, B = NodeId("node-a"), NodeId("node-b")
LAN = ApiAddress(host="10.0.0.2", port=52415, interface_type="ethernet")
WIFI = ApiAddress(host="10.0.1.2", port=52415, interface_type="wifi")


def network(*addresses: tuple[str, str]) -> NodeNetworkInfo:
    rows = [
        NetworkInterfaceInfo(name="en0", ip_address=ip, interface_type=kind)  # type: ignore[arg-type]
        for ip, kind in addresses
    ]
    return NodeNetworkInfo(interfaces=rows)


def hosts(found: Iterable[ApiAddress]) -> list[str]:
    return [one.host for one in found]


def test_a_wildcard_is_every_address_that_others_can_use() -> None:
    known = network(
        ("127.0.0.1", "unknown"),
        ("10.0.0.2", "ethernet"),
        ("169.254.7.7", "thunderbolt"),
        ("::1", "unknown"),
        ("fe80::1", "ethernet"),
        ("fd00::2", "ethernet"),
    )
    assert hosts(api_addresses([("0.0.0.0", 1)], known)) == ["10.0.0.2", "169.254.7.7"]
    assert hosts(api_addresses([("::", 1)], known)) == ["fd00::2"]
    assert api_addresses([("0.0.0.0", 7)], known)[0] == LAN.model_copy(update={"port": 7})
    # Whoever listens on loopback only is reached from the same machine only.
    assert hosts(api_addresses([("127.0.0.1", 1), ("::1", 1)], known)) == ["127.0.0.1", "::1"]
    assert hosts(api_addresses([("10.9.9.9", 1)], None)) == ["10.9.9.9"]


async def test_an_address_counts_when_the_right_node_answers(tmp_path: Path) -> None:
    node = some_services(tmp_path)
    own = node.identity.node_id
    async with serving(node) as url:
        port = int(url.rpartition(":")[2])
        here = ApiAddress(host="127.0.0.1", port=port)
        took_ms = await try_address(here, own)
        assert took_ms is not None
        assert took_ms >= 0
        assert await try_address(here, NodeId("another")) is None
    assert await try_address(here, own) is None


async def test_an_ipv6_address_works(tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"node-b"')
        writer.close()

    try:
        server = await asyncio.start_server(answer, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await try_address(ApiAddress(host="::1", port=port), B) is not None


class Line:
    """What tries of addresses bring, by host; others do not answer."""

    def __init__(self, **took_ms: float) -> None:
        self.took_ms = dict(took_ms)
        self.tried: list[str] = []

    async def attempt(self, address: ApiAddress, _node: NodeId) -> float | None:
        self.tried.append(address.host)
        return self.took_ms.get(address.host)


async def test_links_come_and_go_with_what_answers() -> None:
    a, b = peer_mesh(A, B)
    line, now = Line(), 0.0
    line.took_ms = {LAN.host: 0.5, WIFI.host: 4.0}
    reach = Reachability(a, list, attempt=line.attempt, clock=lambda: now)
    Reachability(b, lambda: [WIFI, LAN])

    async def look() -> list[MeasuredLink]:
        await asyncio.gather(*reach.poll())
        return reach.links()

    first = await look()
    assert [(link.sink, link.host, link.latency_ms) for link in first] == [
        (B, LAN.host, 0.5),
        (B, WIFI.host, 4.0),
    ]
    assert first[1].interface_type == "wifi"
    # Not due yet, so nothing is tried.
    count = len(line.tried)
    await look()
    assert len(line.tried) == count
    # The fastest of the last tries counts, and one lost packet is no lost link.
    line.took_ms = {LAN.host: 9.0}
    for _ in range(MISSES - 1):
        now += ROUND_S
        assert [link.latency_ms for link in await look()] == [0.5, 4.0]
    now += ROUND_S
    assert [link.host for link in await look()] == [LAN.host]
    b.leave()
    assert await look() == []


def test_links_are_edges_between_nodes_that_the_state_knows() -> None:
    def link(sink: str, host: str, port: int = 1) -> MeasuredLink:
        return MeasuredLink(sink=NodeId(sink), host=host, port=port, latency_ms=1.0)

    graph = Topology(nodes=[A, B])
    links = {A: [link(B, "10.0.0.2"), link("unknown", "10.0.0.3")], B: [link(A, "fd00::1", 7)]}
    drawn = with_links(graph, {**links, NodeId("other"): [link(A, "10.0.0.9")]})
    edges = {
        (source, sink): [edge.model_dump()["sinkMultiaddr"]["address"] for edge in found]
        for source, sinks in drawn.connections.items()
        for sink, found in sinks.items()
    }
    assert edges == {(A, B): ["/ip4/10.0.0.2/tcp/1"], (B, A): ["/ip6/fd00::1/tcp/7"]}
    assert graph.connections == {}
    assert with_links(drawn, links) == drawn
