"""Cards and nodes with defaults, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from skulkd.placement.candidates import Cluster, PlacementCandidate
from skulkd.placement.links import Links
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.machine import MemoryUsage

GIB = 1024**3


def a_card(gib: float = 4.0, **changes: Any) -> ModelCard:
    fields: dict[str, Any] = {
        "model_id": ModelId("org/name"),
        "storage_size": Memory.of(int(gib * GIB)),
        "n_layers": 32,
        "hidden_size": 4096,
        "supports_tensor": True,
        "num_key_value_heads": 8,
        "tasks": ["TextGeneration"],
    }
    return ModelCard(**{**fields, **changes})


def memory_of(total_gib: float, free_gib: float | None = None) -> MemoryUsage:
    free = total_gib if free_gib is None else free_gib
    return MemoryUsage(
        ram_total=Memory.of(int(total_gib * GIB)),
        ram_available=Memory.of(int(free * GIB)),
        swap_total=Memory(),
        swap_available=Memory(),
    )


def a_node(
    name: str = "node-a", total_gib: float = 16, free_gib: float | None = None, **changes: Any
) -> PlacementCandidate:
    return PlacementCandidate(NodeId(name), memory_of(total_gib, free_gib), **changes)


def meshed(*nodes: PlacementCandidate, kind: int = 2) -> Cluster:
    """Every node reaches every other one over one kind of link."""
    ids = [node.node_id for node in nodes]
    return linked(nodes, [(one, other, kind) for one in ids for other in ids if one < other])


def linked(nodes: Sequence[PlacementCandidate], pairs: Iterable[tuple[str, str, int]]) -> Cluster:
    """Nodes with links of these kinds, in both directions."""
    ring: dict[tuple[NodeId, NodeId], tuple[int, str]] = {}
    for one, other, kind in pairs:
        ring[NodeId(one), NodeId(other)] = (kind, f"ip-{other}")
        ring[NodeId(other), NodeId(one)] = (kind, f"ip-{one}")
    return Cluster(tuple(nodes), Links(ring=ring, coordinator={k: v[1] for k, v in ring.items()}))


def with_rdma(cluster: Cluster, pairs: Iterable[tuple[str, str]]) -> Cluster:
    """The same cluster with cables between these nodes."""
    rdma = {
        (NodeId(a), NodeId(b)): f"rdma_{a}_{b}"
        for one, other in pairs
        for a, b in ((one, other), (other, one))
    }
    links = Links(cluster.links.ring, cluster.links.coordinator, rdma)
    return Cluster(cluster.nodes, links)
