"""The leader's line to one rank on another node."""

import asyncio
from collections.abc import Callable

from pydantic import ValidationError

from skulkd.peers import PeerError, PeerGone, PeerRefused, Peers
from skulkd.wire.ids import NodeId
from skulkd.worker.group_lead import GroupLead
from skulkd.worker.group_messages import GOAL, Goal, Report
from skulkd.worker.options import GroupLimits


class Link:
    """One rank on another node, asked at every change and with every beat."""

    def __init__(
        self,
        peers: Peers,
        lead: GroupLead,
        rank: int,
        node: NodeId,
        limits: GroupLimits,
        clock: Callable[[], float],
    ) -> None:
        self._peers = peers
        self._lead = lead
        self._rank = rank
        self._node = node
        self._limits = limits
        self._clock = clock
        self._heard_at = clock()
        self._said: Goal | None = None
        self._news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def nudge(self) -> None:
        """Ask at once if there is something new to say."""
        if self._said != self._lead.goal(self._rank):
            self._news.set()

    async def run(self, wake: Callable[[], None]) -> None:
        """Until cancelled."""
        while True:
            self._news.clear()
            await self._ask()
            wake()
            try:
                async with asyncio.timeout(self._limits.beat_s):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _ask(self) -> None:
        goal = self._said = self._lead.goal(self._rank)
        body = goal.model_dump_json().encode()
        try:
            answer = await self._peers.ask(self._node, GOAL, body, deadline_s=self._limits.ask_s)
            self._lead.hear(Report.model_validate_json(answer), asked=True)
        except (PeerGone, PeerRefused) as error:
            self._lead.lose(self._rank, str(error))
        except (PeerError, ValidationError) as error:
            if self._clock() - self._heard_at < self._limits.lease_s:
                return
            self._lead.lose(self._rank, str(error))
        self._heard_at = self._clock()
