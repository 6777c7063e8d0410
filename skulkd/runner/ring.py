"""Joining MLX's own group: its environment, its ports, and a limit from outside the interpreter.

`mx.distributed.init` holds the interpreter and may block for ever, so no thread and no Python
handler can end it: a timer of the kernel does.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx

from skulkd.runner.protocol import JacclLinks
from skulkd.runner.rendezvous import GroupUnreachable

# Whoever calls first waits a second for whoever does not listen yet; the last rank calls first.
_LAST_RANK_WAITS_S = 0.05


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
    return _init("ring", rank, "MLX_HOSTFILE", [[address] for address in addresses], limit_s)


def join_jaccl(links: JacclLinks, rank: int, limit_s: float) -> mx.distributed.Group:
    """Join over Thunderbolt RDMA. Raises GroupUnreachable."""
    check_jaccl(links)
    os.environ["MLX_JACCL_COORDINATOR"] = links.coordinator
    return _init("jaccl", rank, "MLX_IBV_DEVICES", links.devices, limit_s)


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


def _init(
    backend: str, rank: int, variable: str, content: object, limit_s: float
) -> mx.distributed.Group:
    with tempfile.TemporaryDirectory(prefix="skulk-group-") as folder:
        path = Path(folder) / "group.json"
        path.write_text(json.dumps(content))
        os.environ["MLX_RANK"] = str(rank)
        os.environ[variable] = str(path)
        if isinstance(content, list) and rank == len(content) - 1:
            time.sleep(_LAST_RANK_WAITS_S)
        try:
            with alarm(limit_s):
                group = mx.distributed.init(strict=True, backend=backend)
                # A ring is only known to work when something went round.
                mx.eval(mx.distributed.all_sum(mx.ones(1), group=group))
        except RuntimeError as error:
            raise GroupUnreachable(f"MLX could not join the {backend} group: {error}") from error
    return group
