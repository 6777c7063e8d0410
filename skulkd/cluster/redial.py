"""Restores lost links: calls lost nodes again, and logs why peers refuse this node."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable

from skulkd.cluster.cluster import ClusterNode
from skulkd.cluster.refusal_diagnosis import accepts_connections, diagnose_refusal, is_own_address
from skulkd.peers import PeerError
from skulkd.wire.ids import NodeId

REDIAL_LIMIT = 64  # about an hour
FIRST_REDIAL_S = 1.0
INTERVAL_S = 1.0
REFUSED_AFTER_S = 5.0
ADDRESSES_METHOD = "cluster.roster"

log = logging.getLogger(__name__)


async def keep_links(cluster: ClusterNode, secret_origin: str) -> None:
    """Call lost nodes, and log once why peers refuse this one; until cancelled."""
    redial = Redial(cluster)
    opened: float | None = None
    logged = not cluster.fabric.plan.peers
    while True:
        await asyncio.sleep(INTERVAL_S)
        if not cluster.fabric.is_open:
            continue
        opened = opened or time.monotonic()
        if not logged and time.monotonic() - opened >= REFUSED_AFTER_S:
            logged = await log_refusal(cluster, secret_origin)
        await redial.call_lost_nodes()


async def log_refusal(cluster: ClusterNode, secret_origin: str) -> bool:
    """Log why peers refuse this node; True when there is nothing more to log."""
    if cluster.hellos or cluster.fabric.linked():
        return True
    own = cluster.addresses()[cluster.core.node_id]
    for peer in cluster.fabric.plan.peers:
        # One list of peers for all machines is usual, so this node may be in its own.
        if not await is_own_address(
            peer, cluster.fabric.plan.listen, own
        ) and await accepts_connections(peer):
            reason = await diagnose_refusal(peer, cluster.fabric.plan.tls, secret_origin)
            log.warning("%s does not let this node in: %s", peer, reason)
            return True
    return False


class Redial:
    """Calls nodes that were lost without notice: the network may work again."""

    def __init__(
        self,
        cluster: ClusterNode,
        *,
        clock: Callable[[], float] = time.monotonic,
        answers: Callable[[str], Awaitable[bool]] = accepts_connections,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._answers = answers
        self._tries: dict[NodeId, tuple[int, float]] = {}
        self._lacked = False

    async def call_lost_nodes(self) -> None:
        await self._compare_with_master()
        now = self._clock()
        for node in self._tries.keys() - self._cluster.gone.keys():
            del self._tries[node]
        for node, addresses in list(self._cluster.gone.items()):
            tries, due = self._tries.get(node, (0, now + FIRST_REDIAL_S))
            self._tries[node] = (tries, due)
            if now < due:
                continue
            if tries >= REDIAL_LIMIT or self._cluster.is_connected(addresses):
                self._cluster.gone.pop(node, None)
                del self._tries[node]
                continue
            # Quickly at first: a link that was lost by chance is usually there with the next call.
            pause_s = min(60.0, 2.0 * 2 ** max(0, tries - 3))
            self._tries[node] = (tries + 1, now + pause_s)
            answering = [one for one in addresses if await self._answers(one)]
            if answering:
                await asyncio.to_thread(self._cluster.fabric.introduce, answering)

    async def _compare_with_master(self) -> None:
        """A master that sees more nodes than this one knows their addresses.

        Gossip may lose a link when two nodes dial each other at the same moment.
        """
        cluster = self._cluster
        lacked, self._lacked = self._lacked, cluster.lacks_members()
        master = cluster.master()
        if not (lacked and self._lacked) or master is None:
            return
        try:
            answer = await cluster.peers.ask(master, ADDRESSES_METHOD, b"{}", deadline_s=2.0)
        except PeerError as error:
            log.debug("no addresses from the master: %s", error)
            return
        for node, addresses in json.loads(answer).items():
            cluster.missing(NodeId(node), addresses)
