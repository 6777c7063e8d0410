"""What a slot has besides, when its runner is one rank of several.

Every rank has a membership and a port; the one with rank 0 also leads.
"""

import asyncio
from collections.abc import Callable
from uuid import uuid4

from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Instance
from skulkd.worker.causes import Ending
from skulkd.worker.group_lead import GroupLead
from skulkd.worker.group_messages import EndingReport, Level, Report, Stage
from skulkd.worker.group_ports import PortHold, nodes_by_rank
from skulkd.worker.launching import Prepared
from skulkd.worker.membership import Membership
from skulkd.worker.plan import GroupView


class GroupSeat:
    """State only; `groups.py` acts on it."""

    def __init__(self, instance: Instance, rank: int, clock: Callable[[], float]) -> None:
        self.instance_id = instance.instance_id
        self.nodes: list[NodeId] = nodes_by_rank(instance)
        self.rank = rank
        self.membership = Membership(clock)
        self.lead: GroupLead | None = None
        self.prepared: Prepared | None = None
        self.refused: Ending | None = None
        """Why this rank cannot take part at all."""
        self.port: PortHold | None = None
        self.port_attempt = 0
        self.process_attempt = 0
        self.has_process = False
        self.busy = False
        self.work: asyncio.Task[None] | None = None
        """Preparing or joining; it may wait for files for hours."""
        self._life = uuid4().hex
        self._told: tuple[object, ...] | None = None
        self._number = 0

    @property
    def leader(self) -> NodeId:
        return self.nodes[0]

    @property
    def joined(self) -> bool:
        return self.port is not None and self.port_attempt == self.membership.attempt

    def hold(self, port: PortHold | None) -> None:
        """A port for the present attempt; the last one, if any, is free again."""
        if self.port is not None:
            self.port.release()
        self.port, self.port_attempt = port, self.membership.attempt

    async def leave(self, limit_s: float) -> None:
        """Nobody needs this rank any more."""
        if self.work is not None:
            self.work.cancel()
            await asyncio.wait({self.work}, timeout=limit_s)
        self.hold(None)

    def close(self, ending: Ending) -> None:
        self.membership.close(ending)
        self.hold(None)

    def view(self, leader_lost: str | None) -> GroupView:
        membership = self.membership
        return GroupView(
            rank=self.rank,
            size=len(self.nodes),
            attempt=membership.attempt,
            level=membership.level,
            process_attempt=self.process_attempt,
            prepared=self.prepared is not None,
            joined=self.joined,
            busy=self.busy,
            leader_lost=leader_lost,
        )

    def report(self, status: str) -> Report:
        """Where this rank is; the number goes up with every change."""
        membership = self.membership
        if membership.level is Level.REST and not self.has_process:
            self.hold(None)
        attempt = self.process_attempt if self.has_process else membership.attempt
        port = self.port.port if self.port is not None else None
        ending = membership.ending or self.refused
        said = (attempt, self._stage(), port, status, ending)
        if said != self._told:
            self._told = said
            self._number += 1
        return Report(
            instance_id=self.instance_id,
            rank=self.rank,
            life=self._life,
            number=self._number,
            attempt=attempt,
            stage=self._stage(),
            port=port,
            status=status,
            ending=None if ending is None else EndingReport.of(ending),
        )

    def _stage(self) -> Stage:
        if self.has_process:
            return "up"
        if self.refused is not None:
            return "refused"
        if self.membership.ending is not None and not self.membership.rested:
            return "ended"
        if self.membership.level >= Level.JOIN:
            return "joined" if self.joined else "joining"
        return "preparing" if self.prepared is None else "out"
