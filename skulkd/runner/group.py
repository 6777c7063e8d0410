"""The ranks of one instance, as the engine sees them.

The engine runs the same code for one rank and for many; what differs is behind this seam. Rank 0
leads: its orders reach every other rank in the same order.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Protocol

import mlx.core as mx

from skulkd.runner.neighbours import PORT as BELL
from skulkd.runner.neighbours import Bell, check_links
from skulkd.runner.orders import Order, to_json
from skulkd.runner.protocol import Configure, JacclLinks, RankLinks, RunnerOptions
from skulkd.runner.rank_server import Credentials
from skulkd.runner.rank_stream import Transport
from skulkd.runner.rendezvous import (
    Channel,
    GroupUnreachable,
    Meeting,
    Party,
    address_of,
    meet,
)
from skulkd.runner.ring import RingPort, check_jaccl, join_jaccl, join_ring
from skulkd.runner.side_channel import SideChannel
from skulkd.wire.shards import TensorShardMetadata

_log = logging.getLogger("skulkd.runner")
Sharding = Literal["whole", "pipeline", "tensor"]
Lost = Callable[[int, str], None]


class Group(Protocol):
    """`lead` tells the others what to do; `barrier` waits for all; `least` compares numbers."""

    rank: int
    size: int
    sharding: Sharding

    def lead(self, order: Order) -> None: ...

    def barrier(self) -> None: ...

    def least(self, value: int) -> int: ...

    def part(self) -> None: ...


class SoloGroup:
    """A group of one: nobody to tell, nobody to wait for."""

    rank = 0
    size = 1
    sharding: Sharding = "whole"

    def lead(self, order: Order) -> None:
        return

    def barrier(self) -> None:
        return

    def least(self, value: int) -> int:
        return value

    def part(self) -> None:
        return


class RankGroup:
    """Several ranks. After `listen`, orders go to `take` on all ranks but the first."""

    def __init__(
        self, raw: mx.distributed.Group, sharding: Sharding, channels: list[Channel]
    ) -> None:
        self.raw = raw
        self.rank = raw.rank()
        self.size = raw.size()
        self.sharding: Sharding = sharding
        self._channels = channels

    def listen(self, take: Callable[[bytes], None], lost: Lost) -> None:
        """`lost` is told the rank and address of a connection that ended without a farewell."""
        for channel in self._channels:
            channel.watch(take, lambda gone: lost(gone.rank, gone.address))

    def lead(self, order: Order) -> None:
        content = to_json(order)
        for channel in self._channels:
            channel.send(content)

    def barrier(self) -> None:
        mx.eval(mx.distributed.all_sum(mx.ones(1), group=self.raw))

    def least(self, value: int) -> int:
        # A sum of flags per rank would need their number; the ring knows the minimum itself.
        least = mx.distributed.all_min(mx.array([value], mx.int32), group=self.raw)
        lowest: Any = least.item()
        return int(lowest)

    def part(self) -> None:
        """Tell the others that this rank's end is in order."""
        for channel in self._channels:
            channel.bid_farewell()


def connect(configure: Configure, said: dict[str, object]) -> tuple[RankGroup, Meeting]:
    """Meet the other ranks and join MLX's group with them. Raises GroupUnreachable."""
    links, credentials = _links(configure)
    party = Party(
        configure.group or [],
        configure.shard.device_rank,
        credentials,
        said,
        configure.options.connect_deadline_s,
        tuple(links.addresses),
    )
    if configure.jaccl is None:
        raw, meeting = _connect_ring(party, links.ring_address)
    else:
        raw, meeting = _connect_rdma(party, configure.jaccl)
    tensor = isinstance(configure.shard, TensorShardMetadata)
    return RankGroup(raw, "tensor" if tensor else "pipeline", meeting.channels), meeting


def _connect_ring(party: Party, own_address: str) -> tuple[mx.distributed.Group, Meeting]:
    """Every rank dials the next one, so each has a port of its own."""
    port = RingPort(own_address)
    bell = Bell(port.ip, party.credentials, party.rank)
    try:
        ports = {"ring_port": port.number, BELL: bell.port}
        party = replace(party, said={**party.said, **ports})
        meeting = meet(party)
        addresses = [
            f"{port.ip if at == party.rank else party.hosts[at].ip}:{said_by['ring_port']}"
            for at, said_by in enumerate(meeting.said)
        ]
        check_links(party, meeting)
        _log.info("rank %d joins the ring of %s", party.rank, ", ".join(addresses))
        return join_ring(addresses, party.rank, party.deadline_s), meeting
    finally:
        bell.close()
        port.release()


def _connect_rdma(party: Party, links: JacclLinks) -> tuple[mx.distributed.Group, Meeting]:
    """Only rank 0 is dialled; each node has tried its RDMA devices before it started this one."""
    check_jaccl(links)
    meeting = meet(party)
    side_channel = SideChannel(meeting, party.rank, party.deadline_s)
    devices = ", ".join(filter(None, links.devices[party.rank]))
    _log.info("rank %d joins over RDMA by %s", party.rank, devices)
    return join_jaccl(links, party.rank, party.deadline_s, side_channel), meeting


def _links(configure: Configure) -> tuple[RankLinks, Credentials]:
    links = configure.links
    if links is None:
        raise GroupUnreachable("the group has no key")
    try:
        return links, Credentials(bytes.fromhex(links.key), Transport(links.tls))
    except (OSError, ValueError) as error:
        raise GroupUnreachable(
            f"cluster.tls cannot be used by rank connections: {error}"
        ) from error


__all__ = ["Group", "RankGroup", "SoloGroup", "address_of", "connect"]


def agreed_options(own: RunnerOptions, everybody: list[RunnerOptions]) -> RunnerOptions:
    """Ranks that count differently would part company: all serve as rank 0 does.

    What belongs to one machine stays its own. The hidden state between ranks has one type, so
    weights are unpacked on all ranks or on none.
    """
    return everybody[0].model_copy(
        update={
            "eval_deadline_s": own.eval_deadline_s,
            "cores": own.cores,
            "blas": own.blas,
            "float32": all(rank.float32 for rank in everybody),
        }
    )
