"""Instances that failed where they are get another place, if there is one. The master's job.

Each failure is tried once: the same runners with the same reason are not moved twice, and what
fits nowhere else stays as it is, with its failure to be seen. Both are in the journal: a move as
`InstanceMoved`, one that was not possible as `InstanceMoveRefused`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from skulkd.api.journal import Journal
from skulkd.api.placement_errors import NOT_ABOUT_THE_PLAN
from skulkd.api.placing import Placements
from skulkd.cluster.reign import GetReign
from skulkd.cluster.replica import Replica
from skulkd.placement.refusals import Refusal, UnknownInstance
from skulkd.placement.repairs import Repair, refused_event, repairs
from skulkd.wire.events import Event
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State

RETRY_S = 10.0

log = logging.getLogger(__name__)


class Mending:
    """Watches the state on every node; acts where the master is."""

    def __init__(
        self, placements: Placements, replica: Replica, reign: GetReign, node_id: NodeId
    ) -> None:
        self._placements = placements
        self._replica = replica
        self._reign = reign
        self._node_id = node_id
        self._seen = State()
        self._append: Callable[[Event], None] = lambda _: None
        self._tried: set[tuple[str, ...]] = set()
        self._task: asyncio.Task[None] | None = None

    def watch(self, journal: Journal) -> None:
        """From now on look after every change."""
        self._append = journal.append
        journal.on_change(self.look)

    def look(self) -> None:
        """Begin what there is to do; cheap when nothing of importance has changed."""
        before, state = self._seen, self._replica.state
        self._seen = state
        if state.runners is before.runners and state.downloads is before.downloads:
            return
        # What is no failure any more, because somebody started it again, may be one anew.
        self._tried &= {_key(repair) for repair in repairs(state)}
        if self._task is None and self._open(state):
            self._task = asyncio.get_running_loop().create_task(self._mend())

    async def _mend(self) -> None:
        try:
            while todo := self._open(self._replica.state):
                for repair in todo:
                    self._tried.add(_key(repair))
                    await self._move(repair)
        finally:
            self._task = None

    async def _move(self, repair: Repair) -> None:
        instance_id = repair.instance.instance_id
        try:
            await self._placements.repair(repair.instance)
        except UnknownInstance:
            log.info("%s was deleted, or works again, before it was moved", instance_id)
        except Refusal as refusal:
            log.warning("%s stays where it failed: %s", instance_id, refusal)
            if refusal.kind in NOT_ABOUT_THE_PLAN:
                # Another plan would be refused, too; the same one may not be in a while.
                asyncio.get_running_loop().call_later(RETRY_S, self._retry, _key(repair))
                return
            state = self._placements.state()
            self._append(refused_event(repair, state, refusal.kind, str(refusal)))
        except TimeoutError:
            log.warning("nobody decided where %s goes; it stays where it failed", instance_id)
        else:
            log.warning("%s was placed anew: %s", instance_id, repair.reason)

    def _retry(self, key: tuple[str, ...]) -> None:
        self._tried.discard(key)
        if self._task is None and self._open(self._replica.state):
            self._task = asyncio.get_running_loop().create_task(self._mend())

    def _open(self, state: State) -> list[Repair]:
        if self._reign().master_node_id != self._node_id:
            return []
        return [repair for repair in repairs(state) if _key(repair) not in self._tried]


def _key(repair: Repair) -> tuple[str, ...]:
    runners = repair.instance.shard_assignments.runner_to_shard
    return (repair.instance.instance_id, repair.reason, *sorted(runners))
