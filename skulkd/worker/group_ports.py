"""Where the ranks of a group listen and dial: a fresh port for each attempt, held until used.

The ring's ports are not authenticated and old ranks can steal new ones, so no port is used twice.
"""

import socket
from collections.abc import Sequence
from typing import Self

from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Host, Instance, MlxJacclInstance, MlxRingInstance

ANYWHERE = "0.0.0.0"  # noqa: S104 - for addresses that are not ours to bind
# Where the contract has no address to give: ranks that do not talk to each other.
NOWHERE = "198.51.100.1"


class NoAddress(Exception):
    """The instance does not say how one rank reaches another. `str()` says which."""


class PortHold:
    """A free port. Nobody gets it by chance while it is held, MLX can bind it all the same."""

    def __init__(self, address: str) -> None:
        self._socket = _bind(address) or _bind(ANYWHERE)
        if self._socket is None:
            raise OSError(f"no free port on {address}")
        self.address, self.port = self._socket.getsockname()

    def release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


def _bind(address: str) -> socket.socket | None:
    """A bound socket that does not listen; MLX, too, binds with SO_REUSEPORT."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((address, 0))
    except OSError:
        held.close()
        return None
    return held


def nodes_by_rank(instance: Instance) -> list[NodeId]:
    shards = instance.shard_assignments
    ranked = {
        shards.runner_to_shard[runner_id].device_rank: node_id
        for node_id, runner_id in shards.node_to_runner.items()
    }
    return [ranked[rank] for rank in sorted(ranked)]


def listen_address(instance: Instance, rank: int) -> str:
    """The address at which the rank is dialled: only the rank before it does."""
    nodes = nodes_by_rank(instance)
    before = (rank - 1) % len(nodes)
    if isinstance(instance, MlxRingInstance):
        seen = instance.hosts_by_node.get(nodes[before], [])
        if rank < len(seen) and seen[rank].ip not in {ANYWHERE, NOWHERE}:
            return seen[rank].ip
    return ANYWHERE


def dial_list(instance: MlxRingInstance, rank: int, own: str, ports: Sequence[int]) -> list[Host]:
    """Every rank's address as this rank has to dial it; its own is where it listens.

    Raises NoAddress when the rank after this one cannot be dialled.
    """
    nodes = nodes_by_rank(instance)
    seen = instance.hosts_by_node.get(nodes[rank], [])
    hosts = [seen[other].ip if other < len(seen) else ANYWHERE for other in range(len(nodes))]
    hosts[rank] = own
    after = (rank + 1) % len(nodes)
    if hosts[after] in {ANYWHERE, NOWHERE}:
        raise NoAddress(
            f"the instance has no address by which rank {rank} on {nodes[rank]} reaches"
            f" rank {after} on {nodes[after]}"
        )
    return [Host(ip=ip, port=port) for ip, port in zip(hosts, ports, strict=True)]


def coordinator(instance: MlxJacclInstance, rank: int, ports: Sequence[int]) -> str:
    """Where rank 0 waits, as this rank dials it, on the port of this attempt."""
    node_id = nodes_by_rank(instance)[rank]
    address = instance.jaccl_coordinators.get(node_id, ANYWHERE).rpartition(":")[0]
    return f"{address or ANYWHERE}:{ports[0]}"
