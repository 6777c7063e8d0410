"""Addresses, ports and keys with which the ranks of a group connect to each other.

MLX's ring does not authenticate, and a process of an old attempt could connect to a new one: every
attempt uses a fresh port, reserved until the runner binds it, and a fresh key.
"""

import errno
import hashlib
import hmac
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from skulkd.runner.protocol import TlsPaths
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Host, Instance, MlxJacclInstance, MlxRingInstance

# The contract's value for a rank's own address; nothing listens there.
_UNSPECIFIED = "0.0.0.0"  # noqa: S104
# The contract's value where there is no address: these two ranks do not connect to each other.
_NO_ADDRESS = "198.51.100.1"
_LOOPBACK = "127.0.0.1"
# On Linux a second socket may listen on a bound port if both set SO_REUSEPORT.
_REUSE_PORT = sys.platform == "linux"
_TRIES = 20
_NOT_OURS = (
    "; other nodes reach this machine at an address that is not its own (NAT or a proxy?),"
    " and ranks listen at no other address"
)


class NoAddress(Exception):
    """The instance does not say how one rank reaches another. `str()` says which."""


class ReservedPort:
    """A free port, the same at all given addresses of this machine. Raises OSError.

    While it is reserved no other program gets it by chance, but our own runner can bind it.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._sockets = _bind_all(addresses)
        self.port: int = self._sockets[0].getsockname()[1]

    def hand_over(self) -> None:
        """Call this before the runner binds it."""
        if not _REUSE_PORT:
            self.release()

    def release(self) -> None:
        for bound in self._sockets:
            bound.close()
        self._sockets = []


def _bind_all(addresses: Sequence[str]) -> list[socket.socket]:
    """A port that is free at the first address may be in use at another; then try again."""
    for _ in range(_TRIES):
        sockets = [_bind(addresses[0], 0)]
        port: int = sockets[0].getsockname()[1]
        try:
            sockets += [_bind(address, port) for address in addresses[1:]]
        except OSError as error:
            for bound in sockets:
                bound.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return sockets
    raise OSError(f"no port is free at all of {', '.join(addresses)}")


def _bind(address: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if _REUSE_PORT:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((address, port))
    except OSError as error:
        bound.close()
        raise OSError(
            error.errno,
            f"cannot listen at {address} for other ranks: {error.strerror}"
            + (_NOT_OURS if error.errno == errno.EADDRNOTAVAIL else ""),
        ) from error
    return bound


def nodes_by_rank(instance: Instance) -> list[NodeId]:
    shards = instance.shard_assignments
    nodes = {
        shards.runner_to_shard[runner_id].device_rank: node_id
        for node_id, runner_id in shards.node_to_runner.items()
    }
    return [nodes[rank] for rank in sorted(nodes)]


def listen_addresses(instance: Instance, rank: int) -> list[str]:
    """Every address at which another rank connects to this one. Raises NoAddress.

    Over RDMA all connect to rank 0 only; the other ranks reserve a port that nobody uses.
    """
    nodes = nodes_by_rank(instance)
    others = [node for at, node in enumerate(nodes) if at != rank]
    if isinstance(instance, MlxJacclInstance):
        if rank > 0:
            return [_LOOPBACK]
        known = [instance.jaccl_coordinators.get(n, "").rpartition(":")[0] for n in others]
    else:
        known = [_address_seen_by(instance, node_id, rank) or "" for node_id in others]
    found = sorted(set(known) - {"", _UNSPECIFIED})
    if not found:
        raise NoAddress(
            f"the instance has no address by which others reach rank {rank} on {nodes[rank]}"
        )
    return found


def ring_address(instance: Instance, rank: int) -> str:
    """The address at which the previous rank connects to this one. Raises NoAddress."""
    nodes = nodes_by_rank(instance)
    previous = nodes[(rank - 1) % len(nodes)]
    return _address_seen_by(instance, previous, rank) or listen_addresses(instance, rank)[0]


def ring_hosts(instance: MlxRingInstance, rank: int, own: str, ports: Sequence[int]) -> list[Host]:
    """The address at which this rank reaches each rank; its own is where it listens.

    The contract only has the addresses of neighbours, but all ranks connect to rank 0: a rank
    without an address for it uses the one of another rank. Raises NoAddress.
    """
    nodes = nodes_by_rank(instance)

    def address(other: int) -> str:
        if other == rank:
            return own
        views = [nodes[rank], *(node for at, node in enumerate(nodes) if at != other)]
        known = (_address_seen_by(instance, node, other) for node in views)
        found = next((ip for ip in known if ip is not None), None)
        if found is None:
            raise NoAddress(
                f"the instance has no address by which rank {rank} on {nodes[rank]} reaches"
                f" rank {other} on {nodes[other]}"
            )
        return found

    return [Host(ip=address(other), port=port) for other, port in enumerate(ports)]


def _address_seen_by(instance: Instance, node_id: NodeId, rank: int) -> str | None:
    """The address at which this node reaches the rank, if the instance has one."""
    hosts = instance.hosts_by_node.get(node_id, []) if isinstance(instance, MlxRingInstance) else []
    address = hosts[rank].ip if rank < len(hosts) else _UNSPECIFIED
    return None if address in {_UNSPECIFIED, _NO_ADDRESS} else address


def rdma_hosts(instance: MlxJacclInstance, rank: int, ports: Sequence[int]) -> list[Host]:
    """The address at which this rank reaches rank 0; the other ranks are listed by node id."""
    nodes = nodes_by_rank(instance)
    coordinator_ip = instance.jaccl_coordinators.get(nodes[rank], "").rpartition(":")[0]
    first = listen_addresses(instance, 0)[0] if rank == 0 else coordinator_ip
    if first in {"", _UNSPECIFIED}:
        raise NoAddress(f"the instance has no address by which rank {rank} reaches rank 0")
    return [Host(ip=first if at == 0 else nodes[at], port=port) for at, port in enumerate(ports)]


def rdma_coordinator(instance: MlxJacclInstance, rank: int, ports: Sequence[int]) -> str:
    """The address at which this rank reaches rank 0, with the port of this attempt."""
    node_id = nodes_by_rank(instance)[rank]
    address = instance.jaccl_coordinators.get(node_id, _UNSPECIFIED).rpartition(":")[0]
    return f"{address or _UNSPECIFIED}:{ports[0]}"


_SALT = b"skulk rank connections"
_KEY_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class RankSecurity:
    """Protects the connections between ranks: the cluster secret, and this node's certificates.

    Every node derives the key of an attempt by itself, so no key is sent to another node. A runner
    gets its key over its pipe: other processes can read its arguments and its environment.
    """

    secret: str = field(repr=False)
    tls: TlsPaths | None = None

    def key(self, instance_id: InstanceId, attempt: int) -> str:
        """HKDF-SHA256 (RFC 5869) with one block of output; hex."""
        info = f"{instance_id}\0{attempt}".encode()
        return hkdf(self.secret.encode(), _SALT, info).hex()


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """One block, as long as the hash: extract, then expand."""
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()[:_KEY_BYTES]
