"""Which connections of MLX's ring cross a network that others may read. Pure.

The ring between the ranks of a model is MLX's own: clear text, whatever `cluster.tls` says.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from skulkctl.views.instances import short_instance
from skulkctl.views.nodes import node_name
from skulkctl.views.read import Document, mapping, sequence, tagged, text

# Tunnels and direct cables: what crosses them is encrypted, or seen by both ends only.
_TUNNELS = ("wg", "tailscale", "utun", "tun", "tap", "ppp", "zt")


def open_ring_links(state: Document) -> list[str]:
    """`MODEL (INSTANCE): NODE to NODE at ADDRESS`, for every link over a public address."""
    return [
        found
        for instance_id, value in sorted(mapping(state, "instances").items())
        for found in _of_instance(state, instance_id, value)
    ]


def _of_instance(state: Document, instance_id: str, value: object) -> Iterator[str]:
    _, instance = tagged(value)
    shards = mapping(instance, "shardAssignments")
    model = text(shards, "modelId") or "?"
    ranks = _nodes_by_rank(shards)
    for node_id, hosts in sorted(mapping(instance, "hostsByNode").items()):
        for rank, host in enumerate(hosts if isinstance(hosts, list) else []):
            address = text(host, "ip") or ""
            target = ranks.get(rank)
            if target in (None, node_id) or not _is_public(address):
                continue
            if _is_direct(state, str(target), address):
                continue
            names = f"{node_name(state, node_id)} to {node_name(state, str(target))}"
            yield f"{model} ({short_instance(instance_id)}): {names} at {address}"


def _nodes_by_rank(shards: Document) -> dict[object, str]:
    shard_of = mapping(shards, "runnerToShard")
    return {
        tagged(shard_of.get(str(runner_id)))[1].get("deviceRank"): node_id
        for node_id, runner_id in mapping(shards, "nodeToRunner").items()
    }


def _is_public(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


def _is_direct(state: Document, node_id: str, address: str) -> bool:
    """Whether the address belongs to a cable between two machines or to a tunnel."""
    for interface in sequence(state, "nodeNetwork", node_id, "interfaces"):
        if text(interface, "ipAddress") == address:
            name = text(interface, "name") or ""
            thunderbolt = text(interface, "interfaceType") == "thunderbolt"
            return thunderbolt or name.startswith(_TUNNELS)
    return False
