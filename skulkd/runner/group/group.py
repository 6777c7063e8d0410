"""The ranks of one instance, as the engine sees them: one class for one rank and for many."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import mlx.core as mx

from skulkd.runner.errors import GroupUnreachable
from skulkd.runner.group.link_check import PORT_KEY, LinkProbe, check_links
from skulkd.runner.group.mlx_group import RingPort, SideChannel, check_jaccl, join_jaccl, join_ring
from skulkd.runner.group.orders import Order, to_json
from skulkd.runner.group.rank_server import RankCredentials
from skulkd.runner.group.rank_stream import Transport
from skulkd.runner.group.rendezvous import Channel, Connections, RankInfo, rendezvous
from skulkd.runner.protocol import Configure, JacclLinks, RankLinks, RunnerOptions
from skulkd.wire.shards import TensorShardMetadata

_log = logging.getLogger("skulkd.runner")
Sharding = Literal["whole", "pipeline", "tensor"]


class RankGroup:
    """Rank 0 leads: its orders reach every other rank in the same sequence.

    Without arguments it is a group of one, where nothing has to be sent or waited for.
    """

    def __init__(
        self,
        mlx: mx.distributed.Group | None = None,
        sharding: Sharding = "whole",
        channels: Sequence[Channel] = (),
    ) -> None:
        self.mlx = mlx
        self.rank = 0 if mlx is None else mlx.rank()
        self.size = 1 if mlx is None else mlx.size()
        self.sharding: Sharding = sharding
        self._channels = channels

    def listen(
        self, on_order: Callable[[bytes], None], on_lost: Callable[[int, str], None]
    ) -> None:
        """`on_lost` gets rank and address of a connection that ended without a goodbye."""
        for channel in self._channels:
            channel.watch(on_order, lambda lost: on_lost(lost.rank, lost.address))

    def broadcast(self, order: Order) -> None:
        """Send an order to all other ranks."""
        if not self._channels:
            return
        content = to_json(order)
        for channel in self._channels:
            channel.send(content)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.mlx is not None:
            mx.eval(mx.distributed.all_sum(mx.ones(1), group=self.mlx))

    def minimum(self, value: int) -> int:
        """The smallest of all ranks' values."""
        if self.mlx is None:
            return value
        smallest: Any = mx.distributed.all_min(mx.array([value], mx.int32), group=self.mlx).item()
        return int(smallest)

    def leave(self) -> None:
        """Say goodbye, so that the others do not take this rank for lost."""
        for channel in self._channels:
            channel.send_goodbye()


def connect(
    configure: Configure, announcement: dict[str, object]
) -> tuple[RankGroup, list[dict[str, Any]]]:
    """Join the other ranks; also what each of them announced. Raises GroupUnreachable."""
    links, credentials = _links(configure)
    info = RankInfo(
        configure.group or [],
        configure.shard.device_rank,
        credentials,
        announcement,
        configure.options.connect_deadline_s,
        tuple(links.addresses),
    )
    if configure.jaccl is None:
        mlx, connections = _connect_ring(info, links.ring_address)
    else:
        mlx, connections = _connect_rdma(info, configure.jaccl)
    tensor = isinstance(configure.shard, TensorShardMetadata)
    group = RankGroup(mlx, "tensor" if tensor else "pipeline", connections.channels)
    return group, connections.announcements


def _connect_ring(info: RankInfo, own_address: str) -> tuple[mx.distributed.Group, Connections]:
    """Every rank dials the next one, so each has a port of its own."""
    port = RingPort(own_address)
    probe = LinkProbe(port.ip, info.credentials, info.rank)
    try:
        ports = {"ring_port": port.number, PORT_KEY: probe.port}
        info = replace(info, announcement={**info.announcement, **ports})
        connections = rendezvous(info)
        addresses = [
            f"{port.ip if rank == info.rank else info.hosts[rank].ip}:{announced['ring_port']}"
            for rank, announced in enumerate(connections.announcements)
        ]
        check_links(info, connections)
        _log.info("rank %d joins the ring of %s", info.rank, ", ".join(addresses))
        return join_ring(addresses, info.rank, info.deadline_s), connections
    finally:
        probe.close()
        port.release()


def _connect_rdma(info: RankInfo, links: JacclLinks) -> tuple[mx.distributed.Group, Connections]:
    """Only rank 0 is dialled; each node has tried its RDMA devices before it started this one."""
    check_jaccl(links)
    connections = rendezvous(info)
    side_channel = SideChannel(connections, info.rank, info.deadline_s)
    devices = ", ".join(filter(None, links.devices[info.rank]))
    _log.info("rank %d joins over RDMA by %s", info.rank, devices)
    return join_jaccl(links, info.rank, info.deadline_s, side_channel), connections


def _links(configure: Configure) -> tuple[RankLinks, RankCredentials]:
    links = configure.links
    if links is None:
        raise GroupUnreachable("the group has no key")
    try:
        return links, RankCredentials(bytes.fromhex(links.key), Transport(links.tls))
    except (OSError, ValueError) as error:
        raise GroupUnreachable(
            f"cluster.tls cannot be used by rank connections: {error}"
        ) from error


def agreed_options(own: RunnerOptions, all_ranks: list[RunnerOptions]) -> RunnerOptions:
    """All ranks serve with rank 0's options, or they would compute different batches.

    What belongs to one machine stays its own. The hidden state between ranks has one type, so
    weights are unpacked on all ranks or on none.
    """
    return all_ranks[0].model_copy(
        update={
            "eval_deadline_s": own.eval_deadline_s,
            "cores": own.cores,
            "blas": own.blas,
            "float32": all(options.float32 for options in all_ranks),
        }
    )
