"""Where the ranks of a group listen and dial: a fresh port for each attempt, held until used.

The ring's ports are not authenticated and old ranks can steal new ones, so no port is used twice.
"""

import errno
import socket
import sys
from collections.abc import Sequence

from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Host, Instance, MlxJacclInstance, MlxRingInstance

# What the contract has for a rank's own address; nothing listens there.
ANYWHERE = "0.0.0.0"  # noqa: S104
# Where the contract has no address to give: ranks that do not talk to each other.
NOWHERE = "198.51.100.1"
_LOOPBACK = "127.0.0.1"
# Linux lets another socket listen where one is bound and does not listen, if both agree.
_SHARED = sys.platform == "linux"
_TRIES = 20
_NOT_OURS = (
    "; other nodes reach this machine at an address that is not its own (NAT or a proxy?),"
    " and ranks listen at no other address"
)


class NoAddress(Exception):
    """The instance does not say how one rank reaches another. `str()` says which."""


class PortHold:
    """A free port, the same at some addresses of this machine. Raises OSError.

    While it is held no other program gets it by chance, but our own runner may bind it.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._sockets = _bind_all(addresses)
        self.addresses = tuple(addresses)
        self.port: int = self._sockets[0].getsockname()[1]

    def starting(self) -> None:
        """The runner is about to bind it."""
        if not _SHARED:
            self.release()

    def release(self) -> None:
        for held in self._sockets:
            held.close()
        self._sockets = []


def _bind_all(addresses: Sequence[str]) -> list[socket.socket]:
    """A port that is free at the first address may be taken at another: then another port."""
    for _ in range(_TRIES):
        held = [_bind(addresses[0], 0)]
        port: int = held[0].getsockname()[1]
        try:
            held += [_bind(address, port) for address in addresses[1:]]
        except OSError as error:
            for one in held:
                one.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return held
    raise OSError(f"no port is free at all of {', '.join(addresses)}")


def _bind(address: str, port: int) -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if _SHARED:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((address, port))
    except OSError as error:
        held.close()
        raise OSError(
            error.errno,
            f"cannot listen at {address} for other ranks: {error.strerror}"
            + (_NOT_OURS if error.errno == errno.EADDRNOTAVAIL else ""),
        ) from error
    return held


def nodes_by_rank(instance: Instance) -> list[NodeId]:
    shards = instance.shard_assignments
    ranked = {
        shards.runner_to_shard[runner_id].device_rank: node_id
        for node_id, runner_id in shards.node_to_runner.items()
    }
    return [ranked[rank] for rank in sorted(ranked)]


def listen_addresses(instance: Instance, rank: int) -> list[str]:
    """Every address at which another rank dials this one. Raises NoAddress.

    Over RDMA only rank 0 is dialled; the others hold a port that nobody uses.
    """
    nodes = nodes_by_rank(instance)
    others = [node for at, node in enumerate(nodes) if at != rank]
    if isinstance(instance, MlxJacclInstance):
        if rank > 0:
            return [_LOOPBACK]
        known = [instance.jaccl_coordinators.get(n, "").rpartition(":")[0] for n in others]
    else:
        known = [_seen(instance, node_id, rank) or "" for node_id in others]
    found = sorted(set(known) - {"", ANYWHERE})
    if not found:
        raise NoAddress(
            f"the instance has no address by which others reach rank {rank} on {nodes[rank]}"
        )
    return found


def ring_address(instance: Instance, rank: int) -> str:
    """The address at which the rank before this one dials it. Raises NoAddress."""
    nodes = nodes_by_rank(instance)
    before = nodes[(rank - 1) % len(nodes)]
    return _seen(instance, before, rank) or listen_addresses(instance, rank)[0]


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


def rank_0_list(instance: MlxJacclInstance, rank: int, ports: Sequence[int]) -> list[Host]:
    """Rank 0's address as this rank has to dial it; the others are not dialled, only named."""
    nodes = nodes_by_rank(instance)
    dialled = instance.jaccl_coordinators.get(nodes[rank], "").rpartition(":")[0]
    first = listen_addresses(instance, 0)[0] if rank == 0 else dialled
    if first in {"", ANYWHERE}:
        raise NoAddress(f"the instance has no address by which rank {rank} reaches rank 0")
    return [Host(ip=first if at == 0 else nodes[at], port=port) for at, port in enumerate(ports)]


def coordinator(instance: MlxJacclInstance, rank: int, ports: Sequence[int]) -> str:
    """Where rank 0 waits, as this rank dials it, on the port of this attempt."""
    node_id = nodes_by_rank(instance)[rank]
    address = instance.jaccl_coordinators.get(node_id, ANYWHERE).rpartition(":")[0]
    return f"{address or ANYWHERE}:{ports[0]}"
