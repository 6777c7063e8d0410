"""Nodes as rows: from the state and the members to one camelCase item per node. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypedDict

from skulkctl.daemon.members import Members
from skulkctl.daemon.state import ClusterState, known
from skulkctl.endpoints import DEFAULT_PORT
from skulkctl.errors import NotFound
from skulkctl.names import Candidate, Note, find_one
from skulkctl.output.layout import unique_prefixes
from skulkctl.output.tables import EMPTY, Column, Resource, age, share, size
from skulkctl.output.units import age_text, time_text
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkd.wire.cluster import ClusterMember, LostNode
    from skulkd.wire.machine import DiskUsage, MemoryUsage, SystemPerformanceProfile

NO_ANSWER = "NO ANSWER"
LOST = "lost"
SHORT_ID = 12


def skew(value: object) -> str:
    """A difference of clocks, with its direction."""
    if not isinstance(value, int | float):
        return EMPTY
    if abs(value) < 1:
        return f"{value * 1000:+.1f}ms"
    return f"{'+' if value > 0 else '-'}{age_text(abs(value))}"


def drain_word(value: object) -> str:
    return "draining" if value else EMPTY


def rdma_text(value: object) -> str:
    """`on: kite2, kite3`, `on, no link` or `off`; nothing where it is not known."""
    if not isinstance(value, Mapping):
        return EMPTY
    if not value["enabled"]:
        return "off"
    return f"on: {', '.join(value['links'])}" if value["links"] else "on, no link"


def trip(value: object) -> str:
    return f"{value:.1f}ms" if isinstance(value, int | float) else EMPTY


NODES = Resource(
    kind="NodeList",
    name_path="name",
    empty_hint="the daemon has just started and has not seen any node yet:  skulkctl status",
    columns=(
        Column("name", "name", "Name of the node; survives restarts."),
        Column(
            "id",
            "id",
            "Id of the daemon's current session; shortened on a terminal.",
            only_narrow=True,
            spare=9,
            short=unique_prefixes(SHORT_ID),
            is_id=True,
        ),
        Column("role", "role", "master for the node that orders the cluster's events."),
        Column(
            "health",
            "health",
            "ok, warn, error, NO ANSWER (it does not respond), or lost (it left without notice).",
            status=True,
        ),
        Column("drain", "draining", "yes while the node accepts no new work.", text=drain_word),
        Column("free", "memory.availableBytes", "Free memory.", text=size, right=True),
        Column(
            "memory",
            "memory.totalBytes",
            "Total memory.",
            text=size,
            right=True,
            spare=5,
            ratio=share("memory.availableBytes", "memory.totalBytes", free=True),
        ),
        Column(
            "disk",
            "disk.availableBytes",
            "Free disk space on the models volume.",
            size,
            right=True,
            spare=3,
            ratio=share("disk.availableBytes", "disk.totalBytes", free=True),
        ),
        Column("accelerator", "accelerator.name", "GPU or other accelerator.", spare=8),
        Column(
            "address", "address", "Address of its API, with the port if it is not 52415.", spare=4
        ),
        Column(
            "seen",
            "seenSecondsAgo",
            "Time since the node's last report.",
            age,
            right=True,
            spare=2,
        ),
        Column("version", "version", "Version of the daemon.", wide=True),
        Column("age", "uptimeSeconds", "Time since the daemon started.", age, True, right=True),
        Column(
            "skew",
            "clockSkewSeconds",
            "Clock offset from the node that skulkctl connects to.",
            skew,
            True,
        ),
        Column(
            "trip",
            "roundTripMs",
            "Round-trip time from the node that skulkctl connects to.",
            trip,
            True,
            right=True,
        ),
        Column("model", "hardware.model", "Hardware model.", wide=True),
        Column("chip", "hardware.chip", "Processor.", wide=True),
        Column("os", "os", "Operating system.", wide=True),
        Column("rdma", "rdma", "RDMA over Thunderbolt, with the connected nodes.", rdma_text, True),
        Column(
            "disk-size", "disk.totalBytes", "Size of the models volume.", size, True, right=True
        ),
        Column("last-seen", "lastSeen", "Time of the node's last report.", wide=True),
        Column("full-id", "id", "Full id of the daemon's current session.", wide=True),
    ),
)


class MemoryItem(TypedDict):
    totalBytes: int
    availableBytes: int
    swapTotalBytes: int
    swapAvailableBytes: int


class DiskItem(TypedDict):
    totalBytes: int
    availableBytes: int


class AcceleratorItem(TypedDict):
    vendor: str | None
    name: str | None
    utilizationRatio: float | None
    memoryTotalBytes: int | None
    memoryUsedBytes: int | None


class RdmaItem(TypedDict):
    enabled: bool
    links: list[str]


class CertificateItem(TypedDict):
    use: str
    expiresAt: str


class NodeItem(TypedDict):
    """One node as `skulkctl nodes -o json` prints it."""

    name: str
    id: str
    role: str | None
    health: str | None
    reasons: list[dict[str, str]]
    error: str | None
    memory: MemoryItem | None
    disk: DiskItem | None
    accelerator: AcceleratorItem | None
    address: str | None
    addresses: list[str]
    lastSeen: str | None
    seenSecondsAgo: float | None
    version: str | None
    commit: str | None
    hardware: dict[str, str | None]
    os: str | None
    rdma: RdmaItem | None
    draining: bool | None
    uptimeSeconds: float | None
    clockSkewSeconds: float | None
    roundTripMs: float | None
    session: str | None
    certificates: list[CertificateItem]


def node_items(state: ClusterState, members: Members | None = None) -> list[NodeItem]:
    """One item per node, by name.

    `members` may know a node a moment before the state.
    """
    members = members or Members()
    ids = dict.fromkeys([*state.node_ids, *members.by_id])
    return by_name([_item(state, node_id, members) for node_id in ids])


def with_lost(items: Sequence[NodeItem], lost: Sequence[LostNode]) -> list[NodeItem]:
    """With rows for members that were lost; for listings, not for choosing a node."""
    return by_name([*items, *lost_items(lost)])


def by_name(items: Sequence[NodeItem]) -> list[NodeItem]:
    return sorted(items, key=lambda item: (item["name"].casefold(), item["id"]))


def lost_items(lost: Sequence[LostNode]) -> list[NodeItem]:
    """Rows for members that left without notice."""
    empty = _item(ClusterState({}), NodeId(""), Members())
    return [
        {
            **empty,
            "name": node.name,
            "id": node.node_id or node.name,
            "health": LOST,
            "error": f"lost since {time_text(node.since)[:19]}Z: it left without notice",
            "lastSeen": time_text(node.since),
            "seenSecondsAgo": node.since_seconds,
        }
        for node in lost
    ]


def lost_text(lost: LostNode) -> str:
    """`lost for 5m, since 2026-03-04T12:00:00Z: it left without notice`."""
    return f"{lost_since_text(time_text(lost.since), lost.since_seconds)}: it left without notice"


def lost_since_text(since: str, seconds: float) -> str:
    """`lost for 5m, since 2026-03-04T12:00:00Z`, where there is little room."""
    return f"lost for {age_text(seconds)}, since {since[:19]}Z"


def _item(state: ClusterState, node_id: NodeId, members: Members) -> NodeItem:
    identity, last_seen = state.node_identities.get(node_id), state.last_seen.get(node_id)
    health, member = state.node_health.get(node_id), members.by_id.get(node_id)
    name = state.node_name(node_id)
    addresses = _addresses(state, node_id)
    return {
        "name": member.name if member and name == node_id else name,
        "id": node_id,
        "role": _role(node_id, members.master_id),
        "health": NO_ANSWER if node_id in members.silent else health.level if health else None,
        "reasons": [reason.model_dump() for reason in health.reasons] if health else [],
        "error": members.silent.get(node_id),
        "memory": _memory(state.node_memory.get(node_id)),
        "disk": _disk(state.node_disk.get(node_id)),
        "accelerator": accelerator(state.node_system.get(node_id)),
        "address": _api_address(member) or _address(addresses),
        "addresses": addresses,
        "lastSeen": time_text(last_seen) if last_seen else None,
        "seenSecondsAgo": _seconds_since(last_seen, state.now),
        "version": known(identity.skulk_version) if identity else None,
        "commit": known(identity.skulk_commit) if identity else None,
        "hardware": {
            "model": known(identity.model_id) if identity else None,
            "chip": known(identity.chip_id) if identity else None,
        },
        "os": known(identity.os_version) if identity else None,
        "rdma": _rdma(state, node_id),
        "draining": member.draining if member else None,
        "uptimeSeconds": member.uptime_seconds if member else None,
        "clockSkewSeconds": member.clock_skew_seconds if member else None,
        "roundTripMs": member.round_trip_ms if member else None,
        "session": member.session if member else None,
        "certificates": _certificates(member),
    }


def _rdma(state: ClusterState, node_id: NodeId) -> RdmaItem | None:
    """None where the node has not said whether RDMA is enabled."""
    switch = state.node_rdma_ctl.get(node_id)
    if switch is None:
        return None
    links = [state.node_name(sink) for sink in state.rdma_links(node_id)]
    return {"enabled": switch.enabled, "links": sorted(links)}


def _certificates(member: ClusterMember | None) -> list[CertificateItem]:
    found = member.certificates if member else None
    return [{"use": cert.use, "expiresAt": time_text(cert.expires_at)} for cert in found or []]


def _role(node_id: str, master_id: str | None) -> str | None:
    return None if master_id is None else "master" if node_id == master_id else "worker"


def _api_address(member: ClusterMember | None) -> str | None:
    """Where the node says its API listens; None when it does not say."""
    if member is None or not member.api_addresses:
        return None
    best = min(member.api_addresses, key=lambda at: (_is_local(at.host), ":" in at.host))
    shown = f"[{best.host}]" if ":" in best.host else best.host
    return best.host if best.port == DEFAULT_PORT else f"{shown}:{best.port}"


def _seconds_since(last_seen: datetime | None, now: datetime) -> float | None:
    # The server's Date header has whole seconds, so a fresh report may seem to be ahead of it.
    return None if last_seen is None else max(0.0, round((now - last_seen).total_seconds(), 1))


def _memory(reading: MemoryUsage | None) -> MemoryItem | None:
    if reading is None:
        return None
    return {
        "totalBytes": reading.ram_total.in_bytes,
        "availableBytes": reading.ram_available.in_bytes,
        "swapTotalBytes": reading.swap_total.in_bytes,
        "swapAvailableBytes": reading.swap_available.in_bytes,
    }


def _disk(reading: DiskUsage | None) -> DiskItem | None:
    if reading is None:
        return None
    return {
        "totalBytes": reading.total.in_bytes,
        "availableBytes": reading.available.in_bytes,
    }


def accelerator(system: SystemPerformanceProfile | None) -> AcceleratorItem | None:
    """The accelerator of a system reading; a name, or at least its vendor."""
    found = system.accelerator if system else None
    if found is None:
        return None
    return {
        "vendor": known(found.vendor),
        "name": known(found.name) or known(found.vendor),
        "utilizationRatio": found.utilization_ratio,
        "memoryTotalBytes": found.vram_total_bytes,
        "memoryUsedBytes": found.vram_used_bytes,
    }


def _addresses(state: ClusterState, node_id: NodeId) -> list[str]:
    network = state.node_network.get(node_id)
    return [at.ip_address for at in network.interfaces if at.ip_address] if network else []


def _address(addresses: Sequence[str]) -> str | None:
    """The first address that is neither loopback nor link-local, IPv4 first."""
    usable = [address for address in addresses if not _is_local(address)]
    return min(usable, key=lambda address: ":" in address, default=None)


def _is_local(address: str) -> bool:
    return address.startswith(("127.", "169.254.", "fe80:")) or address == "::1"


def find_node(items: Sequence[NodeItem], typed: str, note: Note | None = None) -> NodeItem:
    """The node with that name or id, or that begins so; `note`: see `names.find_one`.

    Raises NotFound, or UsageMistake with the candidates when several match.
    """
    candidates = [
        Candidate(item, (item["id"],), (item["name"],), f"{item['name']}  {item['id']}")
        for item in items
    ]
    found = find_one("node", candidates, typed, note)
    if found is None:
        names = [item["name"] for item in items]
        near = get_close_matches(typed.casefold(), map(str.casefold, names), n=1)
        hints = [f"did you mean {near[0]}?"] if near else ["skulkctl nodes"]
        known = f"nodes: {', '.join(names) or 'none'}"
        raise NotFound(f"no node named {typed}", known, hints=hints)
    return found
