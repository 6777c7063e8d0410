"""Nodes as rows: from `/state` to one camelCase item per node. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

from skulkctl.errors import NotFound
from skulkctl.layout import unique_prefixes
from skulkctl.names import Candidate, Note, find_one
from skulkctl.tables import EMPTY, Column, Resource, age, size
from skulkctl.units import age_text, time_text
from skulkctl.views.read import (
    Document,
    flag,
    integer,
    mapping,
    moment,
    number,
    sequence,
    size_bytes,
    text,
)

NO_ANSWER = "NO ANSWER"
LOST = "lost"
DEFAULT_PORT = 52415
SHORT_ID = 12

Warn = tuple[str, str | None]
"""What a node warns of, and what helps."""


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
    enabled = flag(value, "enabled")
    if enabled is None:
        return EMPTY
    links = ", ".join(str(name) for name in sequence(value, "links"))
    return "off" if not enabled else f"on: {links}" if links else "on, no link"


def trip(value: object) -> str:
    return f"{value:.1f}ms" if isinstance(value, int | float) else EMPTY


NODES = Resource(
    kind="NodeList",
    name_path="name",
    empty_hint="the daemon knows no node yet; it has just started:  skulkctl status",
    columns=(
        Column("name", "name", "Name of the node; survives restarts."),
        Column(
            "id",
            "id",
            "Id of this session; shortened on a terminal.",
            only_narrow=True,
            spare=9,
            short=unique_prefixes(SHORT_ID),
            is_id=True,
        ),
        Column("role", "role", "master for the node that orders the cluster's events."),
        Column(
            "health",
            "health",
            "ok, warn, error, NO ANSWER when the node is silent, or lost when it left unannounced.",
            status=True,
        ),
        Column("drain", "draining", "yes while it takes no new work.", text=drain_word),
        Column("free", "memory.availableBytes", "Free memory.", text=size, right=True),
        Column("memory", "memory.totalBytes", "All memory.", text=size, right=True, spare=5),
        Column(
            "disk",
            "disk.availableBytes",
            "Free disk of the models volume.",
            size,
            right=True,
            spare=3,
        ),
        Column("accelerator", "accelerator.name", "What computes.", spare=8),
        Column(
            "address", "address", "Where its API answers; the port unless it is 52415.", spare=4
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
        Column("age", "uptimeSeconds", "Time since its daemon started.", age, True, right=True),
        Column("skew", "clockSkewSeconds", "Its clock against the asked node's.", skew, True),
        Column("trip", "roundTripMs", "Round trip from the asked node.", trip, True, right=True),
        Column("model", "hardware.model", "Hardware model.", wide=True),
        Column("chip", "hardware.chip", "Processor.", wide=True),
        Column("os", "os", "Operating system.", wide=True),
        Column("rdma", "rdma", "RDMA over Thunderbolt, and to which nodes.", rdma_text, True),
        Column(
            "disk-size", "disk.totalBytes", "Size of the models volume.", size, True, right=True
        ),
        Column("last-seen", "lastSeen", "Time of the node's last report.", wide=True),
        Column("full-id", "id", "Id of this session in full.", wide=True),
    ),
)


def node_ids(state: object) -> list[str]:
    """Every node that any part of the state mentions, in a stable order."""
    ids = dict.fromkeys(
        [
            *mapping(state, "lastSeen"),
            *mapping(state, "nodeIdentities"),
            *(str(node) for node in sequence(state, "topology", "nodes")),
        ]
    )
    return list(ids)


def node_name(state: object, node_id: str) -> str:
    """The friendly name, or the id where the identity has not arrived yet."""
    return text(state, "nodeIdentities", node_id, "friendlyName") or node_id


def node_items(
    state: object,
    now: datetime,
    master_id: str | None = None,
    silent: Mapping[str, str] | None = None,
    members: Mapping[str, Document] | None = None,
) -> list[dict[str, object]]:
    """One item per node, by name. `silent` maps nodes that did not answer to the reason.

    `members` is what `/v1/cluster` says of each; it may know a node a moment before the state.
    """
    silent, members = silent or {}, members or {}
    ids = dict.fromkeys([*node_ids(state), *members])
    items = [
        _item(state, node_id, now, master_id, silent) | _as_member(members.get(node_id, {}))
        for node_id in ids
    ]
    for item in items:
        if item["name"] == item["id"]:
            item["name"] = text(members, str(item["id"]), "name") or item["id"]
    return by_name(items)


def by_name(items: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(items, key=lambda item: (str(item["name"]).casefold(), str(item["id"])))


def lost_items(lost: Sequence[Document]) -> list[dict[str, object]]:
    """Rows for members that left without notice, as `/v1/cluster` lists them."""
    empty = _item({}, "", datetime.min.replace(tzinfo=UTC), None, {}) | _as_member({})
    return [
        {
            **empty,
            "name": text(one, "name"),
            "id": text(one, "nodeId") or text(one, "name"),
            "health": LOST,
            "error": f"lost since {_second(one)}: it left without notice",
            "lastSeen": text(one, "since"),
            "seenSecondsAgo": number(one, "sinceSeconds"),
        }
        for one in lost
    ]


def lost_text(lost: Document) -> str:
    """`lost for 5m, since 2026-03-04T12:00:00Z: it left without notice`."""
    return f"{lost_since_text(lost)}: it left without notice"


def lost_since_text(lost: Document) -> str:
    """`lost for 5m, since 2026-03-04T12:00:00Z`, where there is little room."""
    ago = age_text(number(lost, "sinceSeconds") or 0.0)
    return f"lost for {ago}, since {_second(lost)}"


def _second(lost: Document) -> str:
    """Since when, to the second."""
    return f"{(text(lost, 'since') or '?')[:19]}Z"


def _item(
    state: object,
    node_id: str,
    now: datetime,
    master_id: str | None,
    silent: Mapping[str, str],
) -> dict[str, object]:
    identity = mapping(state, "nodeIdentities", node_id)
    last_seen = moment(state, "lastSeen", node_id)
    health = text(state, "nodeHealth", node_id, "level")
    reasons = [
        dict(reason)
        for reason in sequence(state, "nodeHealth", node_id, "reasons")
        if isinstance(reason, Mapping)
    ]
    role = None if master_id is None else "master" if node_id == master_id else "worker"
    return {
        "name": node_name(state, node_id),
        "id": node_id,
        "role": role,
        "health": NO_ANSWER if node_id in silent else health,
        "reasons": reasons,
        "error": silent.get(node_id),
        "memory": _memory(state, node_id),
        "disk": _disk(state, node_id),
        "accelerator": accelerator(mapping(state, "nodeSystem", node_id)),
        "address": _address(state, node_id),
        "addresses": _addresses(state, node_id),
        "lastSeen": time_text(last_seen) if last_seen else None,
        "seenSecondsAgo": _seconds_since(last_seen, now),
        "version": text(identity, "skulkVersion"),
        "commit": text(identity, "skulkCommit"),
        "hardware": {"model": text(identity, "modelId"), "chip": text(identity, "chipId")},
        "os": text(identity, "osVersion"),
        "rdma": _rdma(state, node_id),
    }


def _rdma(state: object, node_id: str) -> dict[str, object] | None:
    """None where the node has not said whether RDMA is enabled."""
    enabled = flag(state, "nodeRdmaCtl", node_id, "enabled")
    if enabled is None:
        return None
    linked = [
        node_name(state, sink)
        for sink, edges in mapping(state, "topology", "connections", node_id).items()
        if any(text(edge, "sourceRdmaIface") for edge in (edges if isinstance(edges, list) else []))
    ]
    return {"enabled": enabled, "links": sorted(linked)}


def _as_member(member: Document) -> dict[str, object]:
    """What only a node that is asked can tell; null on a stock server."""
    return {
        "draining": flag(member, "draining"),
        "uptimeSeconds": number(member, "uptimeSeconds"),
        "clockSkewSeconds": number(member, "clockSkewSeconds"),
        "roundTripMs": number(member, "roundTripMs"),
        "session": text(member, "session"),
        "certificates": list(sequence(member, "certificates")),
        **_api_address(sequence(member, "apiAddresses")),
    }


def _api_address(told: Sequence[object]) -> dict[str, object]:
    """Where the node says its API listens; nothing when it does not say."""
    found = [
        (text(one, "host") or "", integer(one, "port"))
        for one in told
        if text(one, "host") is not None
    ]
    if not found:
        return {}
    host, port = min(found, key=lambda one: (_is_local(one[0]), ":" in one[0]))
    shown = f"[{host}]" if ":" in host else host
    return {"address": host if port in (None, DEFAULT_PORT) else f"{shown}:{port}"}


def _seconds_since(last_seen: datetime | None, now: datetime) -> float | None:
    # The server's Date header has whole seconds, so a fresh report may seem to be ahead of it.
    return None if last_seen is None else max(0.0, round((now - last_seen).total_seconds(), 1))


def _memory(state: object, node_id: str) -> Document | None:
    reading = mapping(state, "nodeMemory", node_id)
    if not reading:
        return None
    return {
        "totalBytes": size_bytes(reading, "ramTotal"),
        "availableBytes": size_bytes(reading, "ramAvailable"),
        "swapTotalBytes": size_bytes(reading, "swapTotal"),
        "swapAvailableBytes": size_bytes(reading, "swapAvailable"),
    }


def _disk(state: object, node_id: str) -> Document | None:
    reading = mapping(state, "nodeDisk", node_id)
    if not reading:
        return None
    return {
        "totalBytes": size_bytes(reading, "total"),
        "availableBytes": size_bytes(reading, "available"),
    }


def accelerator(system: Document) -> Document | None:
    """The accelerator of a system reading; a name, or at least its vendor."""
    found = mapping(system, "accelerator")
    if not found:
        return None
    return {
        "vendor": text(found, "vendor"),
        "name": text(found, "name") or text(found, "vendor"),
        "utilizationRatio": number(found, "utilizationRatio"),
        "memoryTotalBytes": integer(found, "vramTotalBytes"),
        "memoryUsedBytes": integer(found, "vramUsedBytes"),
    }


def _addresses(state: object, node_id: str) -> list[str]:
    found = [
        text(interface, "ipAddress")
        for interface in sequence(state, "nodeNetwork", node_id, "interfaces")
    ]
    return [address for address in found if address]


def _address(state: object, node_id: str) -> str | None:
    """The first address that is neither loopback nor link-local, IPv4 first."""
    usable = [address for address in _addresses(state, node_id) if not _is_local(address)]
    return min(usable, key=lambda address: ":" in address, default=None)


def _is_local(address: str) -> bool:
    return address.startswith(("127.", "169.254.", "fe80:")) or address == "::1"


def find_node(items: Sequence[Document], typed: str, note: Note | None = None) -> Document:
    """The node with that name or id, or that begins so; `note`: see `names.find_one`.

    Raises NotFound, or UsageMistake with the candidates when several match.
    """
    candidates = [
        Candidate(item, (str(item["id"]),), (str(item["name"]),), f"{item['name']}  {item['id']}")
        for item in items
    ]
    found = find_one("node", candidates, typed, note)
    if found is None:
        names = [str(item["name"]) for item in items]
        near = get_close_matches(typed.casefold(), map(str.casefold, names), n=1)
        hints = [f"did you mean {near[0]}?"] if near else ["skulkctl nodes"]
        known = f"nodes: {', '.join(names) or 'none'}"
        raise NotFound(f"no node named {typed}", known, hints=hints)
    return found
