"""Which connections of MLX's ring cross a network that others may read. Pure.

The ring between the ranks of a model is MLX's own: clear text, whatever `cluster.tls` says.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skulkctl.placement.instances import short_instance
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.instances import Instance
    from skulkd.wire.shards import ShardAssignments

# Tunnels and direct cables: what crosses them is encrypted, or seen by both ends only.
_TUNNELS = ("wg", "tailscale", "utun", "tun", "tap", "ppp", "zt")


def open_ring_links(state: ClusterState) -> list[str]:
    """`MODEL (INSTANCE): NODE to NODE at ADDRESS`, for every link over a public address."""
    return [
        found
        for instance_id, instance in sorted(state.instances.items())
        for found in _of_instance(state, instance_id, instance)
    ]


def _of_instance(state: ClusterState, instance_id: str, instance: Instance) -> Iterator[str]:
    from skulkd.wire.instances import MlxRingInstance

    if not isinstance(instance, MlxRingInstance):
        return
    shards = instance.shard_assignments
    ranks = _nodes_by_rank(shards)
    for node_id, hosts in sorted(instance.hosts_by_node.items()):
        for rank, host in enumerate(hosts):
            target = ranks.get(rank)
            if target is None or target == node_id or not _is_public(host.ip):
                continue
            if _is_direct(state, target, host.ip):
                continue
            names = f"{state.node_name(node_id)} to {state.node_name(target)}"
            yield f"{shards.model_id} ({short_instance(instance_id)}): {names} at {host.ip}"


def _nodes_by_rank(shards: ShardAssignments) -> dict[int, NodeId]:
    return {
        shards.runner_to_shard[runner_id].device_rank: node_id
        for node_id, runner_id in shards.node_to_runner.items()
    }


def _is_public(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


def _is_direct(state: ClusterState, node_id: NodeId, address: str) -> bool:
    """Whether the address belongs to a cable between two machines or to a tunnel."""
    network = state.node_network.get(node_id)
    for interface in network.interfaces if network else ():
        if interface.ip_address == address:
            is_cable = interface.interface_type == "thunderbolt"
            return is_cable or interface.name.startswith(_TUNNELS)
    return False
