"""What this node warns of, from what is in memory: asked for whenever somebody lists the nodes."""

from __future__ import annotations

from skulkd.api.services import Services
from skulkd.machine.warnings import bridge_warnings, leaked_wired_warning, metal_warnings
from skulkd.observe.placement_view import view_placements
from skulkd.placement.promises import shares_of
from skulkd.wire.cluster import NodeWarning


def node_warnings(node: Services) -> list[NodeWarning]:
    """Warnings about placements, readings, the runners' libraries and certificates.

    Reads nothing anew.
    """
    worker, own = node.worker, node.identity.node_id
    supervisors = worker.diagnostics()
    # Diagnostics also warn of a master that holds no rank. That is normal and needs no action, so
    # no master is given here.
    _, texts = view_placements(node.state.current(), supervisors, own, None)
    readings = node.telemetry.of(own)
    found = set(texts)
    if readings is not None:
        alive = any(record.process_alive for record in supervisors)
        leaked = leaked_wired_warning(readings.wired, runner_alive=alive)
        found |= {*readings.warnings, *([leaked] if leaked else [])}
    return [
        *(NodeWarning(message=text) for text in sorted(found)),
        *worker.warnings(),
        *mac_warnings(node),
        *node.tls.warnings(),
    ]


def mac_warnings(node: Services) -> list[NodeWarning]:
    """What this Mac lacks for the models that are placed here, and for RDMA."""
    readings, own = node.telemetry.of(node.identity.node_id), node.identity.node_id
    if readings is None:
        return []
    placed = sum(
        need
        for instance in node.replica.state.instances.values()
        for node_id, need, _ in shares_of(instance)
        if node_id == own
    )
    return [
        *metal_warnings(readings.metal, readings.memory, placed),
        *bridge_warnings(readings.rdma),
    ]
