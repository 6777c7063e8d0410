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
    rdma: Mapping[tuple[NodeId, NodeId], str] = field(default_factory=dict)
    """Interface of the source that leads to the sink."""

    def kind(self, one: NodeId, other: NodeId) -> int:
        """The worse of both directions; NO_LINK unless both are there."""
        there, back = self.ring.get((one, other)), self.ring.get((other, one))
        if there is None or back is None:
            return NO_LINK
        return max(there[0], back[0])

    def has_rdma(self, one: NodeId, other: NodeId) -> bool:
        return (one, other) in self.rdma and (other, one) in self.rdma


def links_of(state: State) -> Links:
    """The links of a merged state."""
    kinds = {node: _interface_kinds(info) for node, info in state.node_network.items()}
    ring: dict[tuple[NodeId, NodeId], tuple[int, str]] = {}
    coordinator: dict[tuple[NodeId, NodeId], str] = {}
    rdma: dict[tuple[NodeId, NodeId], str] = {}
    for source, sinks in state.topology.connections.items():
        for sink, edges in sinks.items():
            known = kinds.get(sink, {})
            addresses = _addresses(edges)
            if addresses:
                ring[source, sink] = min((_ring_kind(ip, known), ip) for ip in addresses)
                coordinator[source, sink] = min(
                    addresses, key=lambda ip: (_coordinator_kind(ip, known), ip)
                )
            for edge in edges:
                if isinstance(edge, RdmaConnection):
                    rdma.setdefault((source, sink), edge.source_rdma_iface)
    return Links(ring, coordinator, rdma)


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
