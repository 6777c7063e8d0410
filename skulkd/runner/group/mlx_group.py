"""Joining MLX's own group: its environment, its ports, and a time limit from the kernel.

`mx.distributed.init` holds the interpreter and may block for ever, so neither a thread nor a Python
signal handler can end it: a timer of the kernel does. For a group over RDMA (JACCL) the ranks
exchange their addresses over the connections that they have already, because MLX would open an
unauthenticated port and wait there for ever.
"""

import ctypes
import json
import math
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import mlx.core as mx

from skulkd.runner.errors import GroupUnreachable
from skulkd.runner.framing import FrameError
from skulkd.runner.group.rendezvous import Channel, Connections
from skulkd.runner.protocol import JacclLinks

Gather = Callable[[bytes, int], bytes]


class SideChannel:
    """Gathers bytes of all ranks on all ranks, in rank order, until `limit_s` from now.

    `failure` is what went wrong, whatever becomes of the exception inside MLX.
    """

    def __init__(self, connections: Connections, rank: int, limit_s: float) -> None:
        self._channels = connections.channels
        self._rank = rank
        self._ends = time.monotonic() + limit_s
        self.failure: GroupUnreachable | None = None

    def make(self, rank: int, size: int) -> Gather:
        """What `mx.distributed.init` takes as `all_gather_factory`. Raises GroupUnreachable."""
        known = len(self._channels) + 1 if self._rank == 0 else size
        if (rank, size) != (self._rank, known):
            self._fail(f"MLX takes rank {self._rank} of {known} for rank {rank} of {size}")
        return lambda mine, length: self._gather(bytes(mine), length, size)

    def _gather(self, mine: bytes, length: int, size: int) -> bytes:
        if self._rank > 0:
            return self._exchange(self._channels[0], mine, length * size)
        parts = [mine, *(self._receive(channel, length) for channel in self._channels)]
        everything = b"".join(parts)
        for channel in self._channels:
            self._send(channel, everything)
        return everything

    def _exchange(self, channel: Channel, mine: bytes, length: int) -> bytes:
        self._send(channel, mine)
        return self._receive(channel, length)

    def _send(self, channel: Channel, content: bytes) -> None:
        try:
            channel.send(content)
        except OSError as error:
            self._fail(_lost(channel, error))

    def _receive(self, channel: Channel, length: int) -> bytes:
        try:
            content = channel.receive_within(self._ends - time.monotonic())
        except (OSError, FrameError) as error:
            self._fail(_lost(channel, error))
        if len(content) != length:
            self._fail(
                f"rank {channel.rank} at {channel.address} sent {len(content)} bytes of RDMA"
                f" addresses, not {length}. Do all nodes have the same version of MLX?"
            )
        return content

    def _fail(self, why: str) -> NoReturn:
        self.failure = GroupUnreachable(why)
        raise self.failure


def _lost(channel: Channel, error: Exception) -> str:
    return (
        f"rank {channel.rank} at {channel.address} was lost while RDMA was set up: {error}."
        " See the log of its runner"
    )


# Whoever calls first waits a second for whoever does not listen yet; the last rank calls first.
_LAST_RANK_WAITS_S = 0.05
# Of an operator's own experiments: MLX would prefer them, and takes the mere presence of the
# first for another kind of group.
_OTHER_GROUPS = frozenset(
    {"MLX_JACCL_RING", "JACCL_RING", "JACCL_RANK", "JACCL_IBV_DEVICES", "JACCL_COORDINATOR"}
)
_EXHAUSTED = "The RDMA driver is out of resources: restart this machine"
# What errors of JACCL mean, by the words that are in them.
_CAUSES = {
    "Could not find device": "RDMA is off on this node, or its ports have changed: rdma_ctl status",
    "protection domain": "The port is down, or its driver must be reset: replug it, then restart",
    "Creating the queue pair": _EXHAUSTED,
    "create queue pair": _EXHAUSTED,
    "memory region": _EXHAUSTED,
    "IPv4-mapped GID": "Its Thunderbolt port needs an IPv4 address and must be in no bridge",
    "RTR failed": "The cables are not where the plan has them, or a bridge is on",
}


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """End the process with code 14, JOIN_FROZEN, if the block takes longer than this."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    # The kernel calls it with the signal's number, which becomes the exit code.
    libc.signal(signal.SIGALRM, ctypes.cast(libc._exit, ctypes.c_void_p))
    signal.alarm(max(1, math.ceil(seconds)))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


class RingPort:
    """A free port that stays ours until MLX listens there: both may bind it, one listens.

    MLX takes any connection for a rank, so it listens at one address of this machine only.
    """

    def __init__(self, ip: str) -> None:
        self.ip = ip
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            self._socket.bind((ip, 0))
        except OSError as error:
            self._socket.close()
            raise GroupUnreachable(
                f"the ring cannot listen at {ip}: {error.strerror}. "
                "The ranks must reach this machine at one of its own addresses."
            ) from error
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


def join_ring(addresses: list[str], rank: int, limit_s: float) -> mx.distributed.Group:
    """Join the TCP ring; `addresses` are where the ranks listen. Raises GroupUnreachable."""
    with _described("MLX_HOSTFILE", [[address] for address in addresses], rank):
        if rank == len(addresses) - 1:
            time.sleep(_LAST_RANK_WAITS_S)
        try:
            with alarm(limit_s):
                group = mx.distributed.init(strict=True, backend="ring")
                prove(group)
        except RuntimeError as error:
            raise GroupUnreachable(f"MLX could not join the ring group: {error}") from error
    return group


def join_jaccl(
    links: JacclLinks, rank: int, limit_s: float, side_channel: SideChannel
) -> mx.distributed.Group:
    """Join over Thunderbolt RDMA. Raises GroupUnreachable."""
    # MLX wants it set, although with the side channel it does not dial it.
    os.environ["MLX_JACCL_COORDINATOR"] = links.coordinator
    for name in _OTHER_GROUPS & os.environ.keys():
        del os.environ[name]
    with _described("MLX_IBV_DEVICES", links.devices, rank):
        try:
            with alarm(limit_s):
                group = mx.distributed.init(
                    strict=True, backend="jaccl", all_gather_factory=side_channel.make
                )
                prove(group)
        except (RuntimeError, ValueError, GroupUnreachable) as error:
            why = f"MLX could not join the jaccl group: {error}. {cause_of(str(error))}"
            raise side_channel.failure or GroupUnreachable(why.strip()) from error
    return group


def cause_of(error: str) -> str:
    """What an error of JACCL means; empty for one that is not known."""
    return next((cause for text, cause in _CAUSES.items() if text in error), "")


def prove(group: mx.distributed.Group) -> None:
    """A group is only known to work when something went round."""
    mx.eval(mx.distributed.all_sum(mx.ones(1), group=group))


def check_jaccl(links: JacclLinks, available: bool | None = None) -> None:
    """Raises GroupUnreachable when this MLX has no RDMA or the matrix of devices is not whole."""
    if available is None:
        available = mx.distributed.is_available("jaccl")
    if not available:
        raise GroupUnreachable(
            f"this MLX has no RDMA backend (jaccl) on {sys.platform}; "
            "place the model with the TCP ring instead"
        )
    ranks = len(links.devices)
    for row, devices in enumerate(links.devices):
        if len(devices) != ranks:
            raise GroupUnreachable(
                f"rank {row} has {len(devices)} RDMA devices listed, not {ranks}"
            )
        for column, device in enumerate(devices):
            if (device is None) != (row == column):
                what = "itself" if row == column else f"rank {column}"
                raise GroupUnreachable(f"rank {row}: RDMA device to {what} is {device}")


@contextmanager
def _described(variable: str, content: object, rank: int) -> Iterator[None]:
    """The environment in which MLX finds its rank and the file that describes the group."""
    with tempfile.TemporaryDirectory(prefix="skulk-group-") as folder:
        path = Path(folder) / "group.json"
        path.write_text(json.dumps(content))
        os.environ["MLX_RANK"] = str(rank)
        os.environ[variable] = str(path)
        yield
