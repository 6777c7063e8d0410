"""How ranks tell each other their RDMA addresses while MLX joins a group over JACCL.

MLX would open a TCP port of its own for it, without authentication, and wait there for ever. It
asks this instead: the bytes go over the connections that the ranks have already, and a rank that
dies or stays silent ends the attempt on all of them, with its name.
"""

import time
from collections.abc import Callable
from typing import NoReturn

from skulkd.runner.framing import FrameError
from skulkd.runner.rendezvous import Channel, GroupUnreachable, Meeting

Gather = Callable[[bytes, int], bytes]


class SideChannel:
    """Gathers bytes of all ranks on all ranks, in rank order, until `limit_s` from now.

    `failure` is what went wrong, whatever becomes of the exception inside MLX.
    """

    def __init__(self, meeting: Meeting, rank: int, limit_s: float) -> None:
        self._channels = meeting.channels
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
