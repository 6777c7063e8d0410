"""Loops of Thunderbolt bridges, in which one broadcast would go round for ever. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from skulkd.wire.ids import NodeId
from skulkd.wire.machine import ThunderboltBridgeStatus
from skulkd.wire.rdma import NodeRdma
from skulkd.wire.topology import RdmaConnection, Topology

Cable = tuple[NodeId, NodeId]


def cables_of_graph(graph: Topology) -> list[Cable]:
    """Who is joined to whom by an RDMA edge; once for each cable that the source reports."""
    return [
        (source, sink)
        for source, sinks in graph.connections.items()
        for sink, edges in sinks.items()
        for edge in edges
        if isinstance(edge, RdmaConnection)
    ]


def cables_of_ports(nodes: Mapping[NodeId, NodeRdma]) -> list[Cable]:
    """The same from the ports that nodes report: RDMA or not, a bridge forwards over all."""
    owner = {
        port.domain_uuid: node_id
        for node_id, rdma in nodes.items()
        for port in rdma.ports or ()
        if port.domain_uuid is not None
    }
    return [
        (node_id, owner[port.peer_uuid])
        for node_id, rdma in nodes.items()
        for port in rdma.ports or ()
        if port.peer_uuid in owner
    ]


def bridge_cycles(
    cables: Iterable[Cable], bridges: Mapping[NodeId, ThunderboltBridgeStatus]
) -> list[list[NodeId]]:
    """Groups of bridging nodes that cables join into a loop, ids sorted.

    Two cables between the same two nodes are a loop as well.
    """
    bridging = {node for node, status in bridges.items() if status.enabled}
    neighbours = _neighbours(cables, bridging)
    # A node with one cable is in no loop; without it, its neighbour may not be either.
    while leaves := [node for node, others in neighbours.items() if others.total() < 2]:
        for leaf in leaves:
            for other in neighbours.pop(leaf):
                if other in neighbours:
                    del neighbours[other][leaf]
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


def _neighbours(cables: Iterable[Cable], bridging: set[NodeId]) -> dict[NodeId, Counter[NodeId]]:
    """How many cables join which bridging nodes. Both ends, or only one, may have reported."""
    reported = Counter(cables)
    neighbours: dict[NodeId, Counter[NodeId]] = {node: Counter() for node in bridging}
    for (source, sink), count in reported.items():
        if source != sink and {source, sink} <= bridging:
            most = max(count, reported[sink, source])
            neighbours[source][sink] = neighbours[sink][source] = most
    return neighbours
