"""Where the ranks of a group listen and dial: a fresh port for each attempt, held until used.

The ring's ports are not authenticated and old ranks can steal new ones, so no port is used twice.
"""

import socket
import sys
from collections.abc import Sequence

from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Host, Instance, MlxJacclInstance, MlxRingInstance

ANYWHERE = "0.0.0.0"  # noqa: S104 - for addresses that are not ours to bind
# Where the contract has no address to give: ranks that do not talk to each other.
NOWHERE = "198.51.100.1"
# Linux lets another socket listen where one is bound and does not listen, if both agree.
_SHARED = sys.platform == "linux"


class NoAddress(Exception):
    """The instance does not say how one rank reaches another. `str()` says which."""


class PortHold:
    """A free port. While it is held nobody gets it by chance, but our own runner may bind it."""

    def __init__(self, address: str) -> None:
        self._socket = _bind(address) or _bind(ANYWHERE)
        if self._socket is None:
            raise OSError(f"no free port on {address}")
        self.address, self.port = self._socket.getsockname()

    def starting(self) -> None:
        """The runner is about to bind it."""
        if not _SHARED:
            self.release()

    def release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _bind(address: str) -> socket.socket | None:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if _SHARED:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
    """The address at which all others dial this rank; anywhere when they use several."""
    seen = {
        address
        for other, node_id in enumerate(nodes_by_rank(instance))
        if other != rank and (address := _seen(instance, node_id, rank)) is not None
    }
    return seen.pop() if len(seen) == 1 else ANYWHERE


def dial_list(instance: MlxRingInstance, rank: int, own: str, ports: Sequence[int]) -> list[Host]:
    """Every rank's address as this rank has to dial it; its own is where it listens.

    The contract names only neighbours. Rank 0 is dialled by all: at the address that another
    rank dials, when this one has none. Raises NoAddress.
    """
    nodes = nodes_by_rank(instance)

    def address(other: int) -> str:
        if other == rank:
            return own
        views = [nodes[rank], *(node for at, node in enumerate(nodes) if at != other)]
        known = (_seen(instance, node, other) for node in views)
        found = next((ip for ip in known if ip is not None), None)
        if found is None:
            raise NoAddress(
                f"the instance has no address by which rank {rank} on {nodes[rank]} reaches"
                f" rank {other} on {nodes[other]}"
            )
        return found

    return [Host(ip=address(other), port=port) for other, port in enumerate(ports)]


def _seen(instance: Instance, node_id: NodeId, rank: int) -> str | None:
    """The address of the rank as this node dials it, if it is told one."""
    hosts = instance.hosts_by_node.get(node_id, []) if isinstance(instance, MlxRingInstance) else []
    address = hosts[rank].ip if rank < len(hosts) else ANYWHERE
    return None if address in {ANYWHERE, NOWHERE} else address


def coordinator(instance: MlxJacclInstance, rank: int, ports: Sequence[int]) -> str:
    """Where rank 0 waits, as this rank dials it, on the port of this attempt."""
    node_id = nodes_by_rank(instance)[rank]
    address = instance.jaccl_coordinators.get(node_id, ANYWHERE).rpartition(":")[0]
    return f"{address or ANYWHERE}:{ports[0]}"
