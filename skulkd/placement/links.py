"""How well nodes reach each other: the kind of every link and the best address for it. Pure.

Kinds are by the interface of the node that is reached, as the reference ranks them. A link
counts only when both directions were measured: a ring needs both.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from skulkd.wire.ids import NodeId
from skulkd.wire.machine import NodeNetworkInfo
from skulkd.wire.state import State
from skulkd.wire.topology import Edge, RdmaConnection, SocketConnection

UNKNOWN_KIND = 4
VPN_KIND = 5
NO_LINK = 9
RING_KINDS = {"thunderbolt": 0, "maybe_ethernet": 1, "ethernet": 2, "wifi": 3, "unknown": 4}
# The coordinator only carries a handshake, which must not depend on the cables it sets up.
COORDINATOR_KINDS = {"ethernet": 0, "wifi": 1, "unknown": 2, "maybe_ethernet": 3, "thunderbolt": 4}
KIND_NAMES = ("Thunderbolt", "Ethernet", "Ethernet", "Wi-Fi", "an unknown link", "VPN")

_VPN_NETWORKS = (
    ipaddress.ip_network("100.64.0.0/10"),
    ipaddress.ip_network("fd7a:115c:a1e0::/48"),
)


@dataclass(frozen=True, slots=True)
class Links:
    """Every direction that was measured, by source and sink."""

    ring: Mapping[tuple[NodeId, NodeId], tuple[int, str]] = field(default_factory=dict)
    """Kind and address to dial."""
    coordinator: Mapping[tuple[NodeId, NodeId], str] = field(default_factory=dict)
    """An IPv4 address, the only kind that rank 0 can be dialled at."""
    rdma: Mapping[tuple[NodeId, NodeId], str] = field(default_factory=dict)
    """Interface of the source that leads to the sink; both directions name the same cable."""

    def kind(self, one: NodeId, other: NodeId) -> int:
        """The worse of both directions; NO_LINK unless both are there."""
        there, back = self.ring.get((one, other)), self.ring.get((other, one))
        if there is None or back is None:
            return NO_LINK
        return max(there[0], back[0])

    def is_one_way(self, one: NodeId, other: NodeId) -> bool:
        """Whether only one direction was measured."""
        return ((one, other) in self.ring) != ((other, one) in self.ring)

    def has_rdma(self, one: NodeId, other: NodeId) -> bool:
        return (one, other) in self.rdma and (other, one) in self.rdma


def links_of(state: State) -> Links:
    """The links of a merged state."""
    kinds = {node: _interface_kinds(info) for node, info in state.node_network.items()}
    ring: dict[tuple[NodeId, NodeId], tuple[int, str]] = {}
    coordinator: dict[tuple[NodeId, NodeId], str] = {}
    for source, sinks in state.topology.connections.items():
        for sink, edges in sinks.items():
            known = kinds.get(sink, {})
            addresses = _addresses(edges)
            if addresses:
                ring[source, sink] = min((_ring_kind(ip, known), ip) for ip in addresses)
            if dialled := [ip for ip in addresses if ":" not in ip]:
                coordinator[source, sink] = min(
                    dialled, key=lambda ip: (_coordinator_kind(ip, known), ip)
                )
    return Links(ring, coordinator, _rdma_interfaces(state))


def _rdma_interfaces(state: State) -> dict[tuple[NodeId, NodeId], str]:
    """For each pair one cable that both ends report; nodes count only when RDMA is on there.

    With two cables the ends must not choose differently: the group would wait for ever.
    """
    on = {node for node, status in state.node_rdma_ctl.items() if status.enabled}
    found: dict[tuple[NodeId, NodeId], str] = {}
    for source in sorted(on):
        for sink, edges in state.topology.connections.get(source, {}).items():
            if sink not in on or source >= sink:
                continue
            back = state.topology.connections.get(sink, {}).get(source, [])
            cables = _cables(edges) & {(far, near) for near, far in _cables(back)}
            if cables:
                found[source, sink], found[sink, source] = min(cables, key=_port_order)
    return found


def _cables(edges: list[Edge]) -> set[tuple[str, str]]:
    """The interfaces at both ends, this one first."""
    return {
        (edge.source_rdma_iface, edge.sink_rdma_iface)
        for edge in edges
        if isinstance(edge, RdmaConnection)
    }


def _port_order(cable: tuple[str, str]) -> tuple[int, str, int, str]:
    """en2 before en10."""
    near, far = cable
    return len(near), near, len(far), far


def _addresses(edges: list[Edge]) -> list[str]:
    return [e.sink_multiaddr.ip_address for e in edges if isinstance(e, SocketConnection)]


def _interface_kinds(info: NodeNetworkInfo) -> dict[str, str]:
    return {row.ip_address: row.interface_type for row in info.interfaces}


def _ring_kind(address: str, known: Mapping[str, str]) -> int:
    if _is_vpn(address):
        return VPN_KIND
    return RING_KINDS[known.get(address, "unknown")]


def _coordinator_kind(address: str, known: Mapping[str, str]) -> int:
    if _is_vpn(address):
        return VPN_KIND
    return COORDINATOR_KINDS[known.get(address, "unknown")]


@lru_cache(maxsize=4096)
def _is_vpn(address: str) -> bool:
    """By address, whatever the interface calls itself. A host name is none."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in _VPN_NETWORKS)
