"""Changes to the graph of nodes and edges. Pure; every function returns a new graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from skulkd.wire.gathered import ThunderboltConnection
from skulkd.wire.ids import NodeId
from skulkd.wire.links import MeasuredLink
from skulkd.wire.machine import NodeThunderboltInfo
from skulkd.wire.rdma import NodeRdma
from skulkd.wire.topology import (
    Connection,
    Edge,
    Multiaddr,
    RdmaConnection,
    SocketConnection,
    Topology,
)

Connections = dict[NodeId, dict[NodeId, list[Edge]]]


def with_node(graph: Topology, node_id: NodeId) -> Topology:
    """The graph with this node in it."""
    if node_id in graph.nodes:
        return graph
    return graph.model_copy(update={"nodes": [*graph.nodes, node_id]})


def without_node(graph: Topology, node_id: NodeId) -> Topology:
    """The graph without this node and every edge from or to it."""
    connections: Connections = {}
    for source, sinks in graph.connections.items():
        kept = {sink: edges for sink, edges in sinks.items() if sink != node_id}
        if source != node_id and kept:
            connections[source] = kept
    nodes = [node for node in graph.nodes if node != node_id]
    return Topology(nodes=nodes, connections=connections)


def with_edge(graph: Topology, conn: Connection) -> Topology:
    """The graph with this edge, once; its ends become nodes."""
    graph = with_node(with_node(graph, conn.source), conn.sink)
    edges = graph.connections.get(conn.source, {}).get(conn.sink, [])
    if conn.edge in edges:
        return graph
    return _replaced(graph, conn.source, conn.sink, [*edges, conn.edge])


def without_edge(graph: Topology, conn: Connection) -> Topology:
    """The graph without exactly this edge; nodes stay."""
    edges = graph.connections.get(conn.source, {}).get(conn.sink, [])
    if conn.edge not in edges:
        return graph
    kept = [edge for edge in edges if edge != conn.edge]
    return _replaced(graph, conn.source, conn.sink, kept)


def rdma_edges(
    links: Iterable[ThunderboltConnection],
    ports: Mapping[NodeId, NodeThunderboltInfo],
    source: NodeId,
) -> list[Connection]:
    """Cables that start at `source`, by node and interface; unknown ends are left out."""
    owner = {
        port.domain_uuid: (node_id, port.rdma_interface)
        for node_id, info in ports.items()
        for port in info.interfaces
    }
    found = []
    for link in links:
        near, far = owner.get(link.source_uuid), owner.get(link.sink_uuid)
        if near is not None and far is not None and near[0] == source:
            edge = RdmaConnection(source_rdma_iface=near[1], sink_rdma_iface=far[1])
            found.append(Connection(source=source, sink=far[0], edge=edge))
    return found


def with_rdma_readings(graph: Topology, nodes: Mapping[NodeId, NodeRdma]) -> Topology:
    """The graph with the cables over which RDMA works, as far as the node at their start can tell.

    Nodes that report no ports keep the edges they have.
    """
    ports = {node: info for node, rdma in nodes.items() if (info := rdma.identifiers) is not None}
    for node_id in ports:
        cables = [
            ThunderboltConnection(source_uuid=port.domain_uuid, sink_uuid=port.peer_uuid)
            for port in nodes[node_id].ports or ()
            if port.domain_uuid and port.peer_uuid and nodes[node_id].usable(port)
        ]
        graph = with_rdma_edges(graph, node_id, rdma_edges(cables, ports, node_id))
    return graph


def with_rdma_edges(graph: Topology, source: NodeId, links: Iterable[Connection]) -> Topology:
    """The graph in which these are the only RDMA edges that leave `source`."""
    for sink, edges in graph.connections.get(source, {}).items():
        kept: list[Edge] = [edge for edge in edges if not isinstance(edge, RdmaConnection)]
        graph = _replaced(graph, source, sink, kept)
    for link in links:
        graph = with_edge(graph, link)
    return graph


def with_links(graph: Topology, links: Mapping[NodeId, Iterable[MeasuredLink]]) -> Topology:
    """The graph with what nodes measured of each other, as far as it knows both ends."""
    nodes = set(graph.nodes)
    connections: Connections = {
        source: {sink: list(edges) for sink, edges in sinks.items()}
        for source, sinks in graph.connections.items()
    }
    for source in sorted(nodes & links.keys()):
        for link in links[source]:
            if link.sink in nodes:
                edges = connections.setdefault(source, {}).setdefault(link.sink, [])
                edge = _socket_edge(link.host, link.port)
                if edge not in edges:
                    edges.append(edge)
    return graph.model_copy(update={"connections": connections})


@lru_cache(maxsize=4096)
def _socket_edge(host: str, port: int) -> SocketConnection:
    kind = "ip6" if ":" in host else "ip4"
    return SocketConnection(sink_multiaddr=Multiaddr(address=f"/{kind}/{host}/tcp/{port}"))


def _replaced(graph: Topology, source: NodeId, sink: NodeId, edges: list[Edge]) -> Topology:
    sinks = {**graph.connections.get(source, {}), sink: edges}
    connections = {**graph.connections, source: {k: v for k, v in sinks.items() if v}}
    kept = {node: targets for node, targets in connections.items() if targets}
    return graph.model_copy(update={"connections": kept})
