"""Loops of Thunderbolt bridges, in which one broadcast would go round for ever. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from skulkd.wire.ids import NodeId
from skulkd.wire.machine import ThunderboltBridgeStatus
from skulkd.wire.topology import RdmaConnection, Topology


def bridge_cycles(
    graph: Topology, bridges: Mapping[NodeId, ThunderboltBridgeStatus]
) -> list[list[NodeId]]:
    """Groups of at least three bridging nodes that cables join into a loop, ids sorted."""
    neighbours = _cables(graph, {node for node, status in bridges.items() if status.enabled})
    # A node with one cable is in no loop; without it, its neighbour may not be either.
    while leaves := [node for node, others in neighbours.items() if len(others) < 2]:
        for leaf in leaves:
            for other in neighbours.pop(leaf):
                neighbours[other].discard(leaf)
    groups = []
    while neighbours:
        group, edge = set[NodeId](), {min(neighbours)}
        while edge:
            group |= edge
            edge = {other for node in edge for other in neighbours[node]} - group
        groups.append(sorted(group))
        for node in group:
            del neighbours[node]
    return groups


def _cables(graph: Topology, bridging: set[NodeId]) -> dict[NodeId, set[NodeId]]:
    """Which bridging nodes a cable joins, in both directions."""
    neighbours: dict[NodeId, set[NodeId]] = {node: set() for node in bridging}
    for source, sinks in graph.connections.items():
        for sink, edges in sinks.items():
            joined = any(isinstance(edge, RdmaConnection) for edge in edges)
            if joined and source != sink and {source, sink} <= bridging:
                neighbours[source].add(sink)
                neighbours[sink].add(source)
    return neighbours
