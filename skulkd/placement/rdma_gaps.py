"""Why nodes cannot be joined by RDMA: what is missing, on which node, and what helps. Pure.

Explains only. Whether a link works is decided by `links.py` from the edges and switches of the
state, so an explanation can never make a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from skulkd.placement.links import Links
from skulkd.wire.ids import NodeId
from skulkd.wire.rdma import THUNDERBOLT_4_GBPS, NodeRdma, ThunderboltPort

GapCode = Literal[
    "not_read", "not_macos", "thunderbolt_4", "macos_version", "disabled", "no_devices",
    "no_cable", "slow_link", "port_unknown", "port_down", "no_ipv4", "one_direction", "no_route",
    "no_memory",
]  # fmt: skip
MACOS_VERSION = (26, 2)

_HINTS: Mapping[GapCode, str] = {
    "not_read": "see why its Thunderbolt ports cannot be read: skulkctl diagnose {node}",
    "macos_version": "update {node} to macOS 26.2 or later",
    "disabled": "on {node}: start it in Recovery, open Terminal, run: rdma_ctl enable, restart it",
    "no_devices": "on {node}: ibv_devices lists nothing; restart it",
    "no_cable": "connect {node} and {other} by a Thunderbolt 5 cable",
    "slow_link": "use a Thunderbolt 5 cable and ports between {node} and {other}",
    "port_down": "check the cable of {device} on {node} and rdma_ctl status at its other end",
    "no_ipv4": "on {node}: turn the Thunderbolt bridge off, then give {interface} an address in a"
    " network that only this cable has: sudo ifconfig {interface} inet 192.168.0.{end}/30",
    "no_route": "connect {node} and {other} by Ethernet or Wi-Fi, too",
}


@dataclass(frozen=True, slots=True)
class RdmaGap:
    """One thing that is missing."""

    code: GapCode
    node_id: NodeId
    text: str
    other: NodeId | None = None
    device: str = ""

    @property
    def hint(self) -> str | None:
        template = _HINTS.get(self.code)
        return template and template.format(
            node=self.node_id,
            other=self.other,
            device=self.device,
            interface=self.device.removeprefix("rdma_"),
            end=1 if self.node_id < (self.other or "") else 2,
        )

    @property
    def data(self) -> dict[str, Any]:
        found = {"code": self.code, "node": self.node_id, "other": self.other, "text": self.text}
        return {key: value for key, value in found.items() if value is not None}


def find_gaps(
    nodes: Sequence[NodeId],
    rdma: Mapping[NodeId, NodeRdma],
    versions: Mapping[NodeId, str],
    links: Links,
) -> list[RdmaGap]:
    """What is missing on each node; then, among nodes that lack nothing, on each pair."""
    alone = {node: node_gap(node, rdma.get(node), versions.get(node, "")) for node in nodes}
    gaps = [gap for gap in alone.values() if gap is not None]
    able = [node for node, gap in alone.items() if gap is None]
    for one, other in combinations(able, 2):
        gaps += _pair_gaps(one, other, rdma, links)
    return gaps


def too_small(nodes: Sequence[NodeId]) -> RdmaGap:
    """Nodes that RDMA joins, and that have too little memory together."""
    text = f"{', '.join(nodes)} are joined by RDMA, but have too little memory for the model"
    return RdmaGap("no_memory", nodes[0], text)


def node_gap(node_id: NodeId, rdma: NodeRdma | None, version: str) -> RdmaGap | None:
    """What a node lacks, whoever it is connected to."""
    found = next(_lacks(rdma, version), None)
    return found and RdmaGap(found[0], node_id, f"{node_id} {found[1]}")


def _lacks(rdma: NodeRdma | None, version: str) -> Iterator[tuple[GapCode, str]]:
    """Whatever it lacks, what it needs first before the rest."""
    if rdma is None:
        yield "not_read", "has not reported its Thunderbolt ports yet"
        return
    why = f": {rdma.problems[0]}" if rdma.problems else ""
    if rdma.ports is None:
        if rdma.problems:
            yield "not_read", f"cannot read its Thunderbolt ports{why}"
        yield "not_macos", "is not a Mac, and RDMA over Thunderbolt needs macOS"
    fastest = max((port.gbps for port in rdma.ports or ()), default=0.0)
    if fastest <= THUNDERBOLT_4_GBPS:
        yield "thunderbolt_4", f"has no Thunderbolt 5 port (fastest: {fastest:g} Gb/s)"
    if rdma.switch == "absent":
        if _is_old(version):
            yield "macos_version", f"runs macOS {version}; RDMA needs 26.2 or later"
        yield "not_read", "has no rdma_ctl, so RDMA cannot be enabled"
    if rdma.switch == "disabled":
        yield "disabled", "has RDMA disabled"
    if rdma.switch == "unknown":
        yield "not_read", f"does not tell whether RDMA is enabled{why}"
    if rdma.devices is None:
        yield "not_read", f"cannot list its RDMA devices{why}"
    if not rdma.devices:
        yield "no_devices", "has RDMA enabled but no RDMA device"


def _is_old(version: str) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return bool(numbers) and numbers < MACOS_VERSION


def _pair_gaps(
    one: NodeId, other: NodeId, rdma: Mapping[NodeId, NodeRdma], links: Links
) -> list[RdmaGap]:
    if links.has_rdma(one, other):
        dialled = ((one, other) in links.coordinator, (other, one) in links.coordinator)
        if any(dialled):
            return []
        text = f"{one} and {other} do not reach each other over IPv4 to agree on a group"
        return [RdmaGap("no_route", one, text, other)]
    cables = list(_cables(rdma[one], rdma[other]))
    if not cables:
        text = f"no Thunderbolt cable joins {one} and {other}"
        return [RdmaGap("no_cable", one, text, other)]
    found = []
    for near, far in cables:
        sides = ((one, other, near), (other, one, far))
        found += [
            gap
            for node, peer, port in sides
            if (gap := _port_gap(node, peer, rdma[node], port)) is not None
        ]
    text = f"only one end of the cable between {one} and {other} reports it"
    return found or [RdmaGap("one_direction", one, text, other)]


def _cables(one: NodeRdma, other: NodeRdma) -> Iterator[tuple[ThunderboltPort, ThunderboltPort]]:
    """Both ends of each cable between two nodes; one report of it is enough."""
    for near in one.ports or ():
        for far in other.ports or ():
            if (near.domain_uuid and near.domain_uuid == far.peer_uuid) or (
                far.domain_uuid and far.domain_uuid == near.peer_uuid
            ):
                yield near, far


def _port_gap(node: NodeId, peer: NodeId, rdma: NodeRdma, port: ThunderboltPort) -> RdmaGap | None:
    def gap(code: GapCode, text: str) -> RdmaGap:
        return RdmaGap(code, node, text, peer, port.rdma_interface)

    if port.interface is None:
        where = f"Thunderbolt {port.receptacle}"
        return gap("port_unknown", f"{node} has no network interface for its port {where}")
    if port.gbps <= THUNDERBOLT_4_GBPS:
        return gap("slow_link", f"{node} is linked to {peer} at only {port.link_speed}")
    device = rdma.device(port)
    if device is None or not device.active:
        what = "is down" if device is not None else "is not there"
        what += ": the Mac at its other end offers no RDMA" if port.peer_rdma is False else ""
        return gap("port_down", f"{port.rdma_interface} on {node}, towards {peer}, {what}")
    if device.ipv4 is None:
        bridged = " (the Thunderbolt bridge is on)" if rdma.bridge and rdma.bridge.enabled else ""
        return gap("no_ipv4", f"{port.interface} on {node} has no IPv4 address{bridged}")
    return None
