"""Links that should be there and are not: nodes to call again, and why nobody lets this one in."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable

from skulkd.cluster.cluster import Cluster
from skulkd.cluster.refused import answers, is_own_address, why_refused
from skulkd.peers import PeerError
from skulkd.wire.ids import NodeId

REDIAL_LIMIT = 64  # about an hour
FIRST_REDIAL_S = 1.0
ROSTER = "cluster.roster"

log = logging.getLogger(__name__)


async def tell_refusal(cluster: Cluster, secret_origin: str) -> bool:
    """Say once why nobody lets this node in; True when there is nothing more to say."""
    if cluster.greetings or cluster.fabric.linked():
        return True
    own = cluster.addresses()[cluster.core.node_id]
    for peer in cluster.fabric.plan.peers:
        # One list of peers for all machines is usual, so this node may be in its own.
        if not await is_own_address(peer, cluster.fabric.plan.listen, own) and await answers(peer):
            reason = await why_refused(peer, cluster.fabric.plan.tls, secret_origin)
            log.warning("%s does not let this node in: %s", peer, reason)
            return True
    return False


class Redial:
    """Calls nodes that were lost without a good-bye: the network may be whole again."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Callable[[], float] = time.monotonic,
        answers: Callable[[str], Awaitable[bool]] = answers,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._answers = answers
        self._tries: dict[NodeId, tuple[int, float]] = {}
        self._lacked = False

    async def look(self) -> None:
        await self._compare()
        now = self._clock()
        for node in self._tries.keys() - self._cluster.gone.keys():
            del self._tries[node]
        for node, addresses in list(self._cluster.gone.items()):
            tries, due = self._tries.get(node, (0, now + FIRST_REDIAL_S))
            self._tries[node] = (tries, due)
            if now < due:
                continue
            if tries >= REDIAL_LIMIT or self._cluster.is_met(addresses):
                self._cluster.gone.pop(node, None)
                del self._tries[node]
                continue
            # Quickly at first: a link that was lost by chance is usually there with the next call.
            pause_s = min(60.0, 2.0 * 2 ** max(0, tries - 3))
            self._tries[node] = (tries + 1, now + pause_s)
            answering = [one for one in addresses if await self._answers(one)]
            if answering:
                await asyncio.to_thread(self._cluster.fabric.introduce, answering)

    async def _compare(self) -> None:
        """A master that sees more nodes than this one knows where they are.

        Gossip may lose a link when two nodes dial each other at the same moment.
        """
        cluster = self._cluster
        lacked, self._lacked = self._lacked, cluster.lacks_members()
        master = cluster.master()
        if not (lacked and self._lacked) or master is None:
            return
        try:
            answer = await cluster.peers.ask(master, ROSTER, b"{}", deadline_s=2.0)
        except PeerError as error:
            log.debug("no roster: %s", error)
            return
        for node, addresses in json.loads(answer).items():
            cluster.missing(NodeId(node), addresses)
