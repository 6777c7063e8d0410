"""Replacement of instances that cannot stay where they are. The master's job.

A lost node: the cluster asks `plan` for a new place until there is one. A failed runner: every
failure is tried once; the same runners with the same reason are not moved twice, and what fits
nowhere else stays where it failed. The journal has both: `InstanceMoved` for a move,
`InstanceMoveRefused` for a failed instance that stays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from skulkd.cluster.commands import CLUSTER_DOWN, NO_MASTER
from skulkd.cluster.commits import STORAGE_FAILED, STORAGE_FULL
from skulkd.cluster.journal import Journal
from skulkd.cluster.replica import Replica
from skulkd.placement.orders import NodeFacts, with_facts
from skulkd.placement.refusals import Refusal, UnknownInstance
from skulkd.placement.repairs import Repair, refused_event, repairs, replanned
from skulkd.scheduling.placements import Placements
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.state import State

RETRY_S = 10.0
FACTS_AGE_S = 10.0
NOT_ABOUT_THE_PLAN = frozenset({STORAGE_FULL, STORAGE_FAILED, CLUSTER_DOWN, NO_MASTER})
"""Refusals that no other plan would avoid."""

log = logging.getLogger(__name__)

RepairKey = tuple[str, ...]


class Replacement:
    """Watches the state on every node; acts on the master only."""

    def __init__(
        self,
        placements: Placements,
        replica: Replica,
        journal: Journal,
        is_master: Callable[[], bool],
    ) -> None:
        self._placements = placements
        self._replica = replica
        self._is_master = is_master
        self._append = journal.append
        self._seen = State()
        self._tried: set[RepairKey] = set()
        self.task: asyncio.Task[None] | None = None
        """Moves that are under way."""
        self._facts: dict[ModelId, tuple[float, dict[NodeId, NodeFacts]]] = {}
        self._asking: dict[ModelId, asyncio.Task[None]] = {}
        journal.on_change(self._on_change)

    # Instances that lost a node.

    def plan(self, instance: Instance) -> Instance | str:
        """The instance on nodes that are here, or why that is impossible.

        The text is empty while the nodes are being asked for their facts: the caller must not
        wait, and asks again in a moment.
        """
        model_id = instance.shard_assignments.model_id
        asked_at, facts = self._facts.get(model_id, (float("-inf"), {}))
        if time.monotonic() - asked_at > FACTS_AGE_S:
            self._ask_facts(model_id)
            return ""
        inputs = with_facts(self._placements.inputs(), facts)
        try:
            return replanned(instance, self._placements.state(), inputs)
        except Refusal as refusal:
            return str(refusal)

    def _ask_facts(self, model_id: ModelId) -> None:
        if model_id in self._asking:
            return

        async def ask() -> None:
            try:
                facts = await self._placements.node_facts(model_id)
                now = time.monotonic()
                fresh = {key: one for key, one in self._facts.items() if now - one[0] < FACTS_AGE_S}
                self._facts = {**fresh, model_id: (now, facts)}
            finally:
                del self._asking[model_id]

        self._asking[model_id] = asyncio.create_task(ask())

    # Instances whose runners failed.

    def _on_change(self) -> None:
        """Cheap when neither runners nor downloads have changed."""
        before, state = self._seen, self._replica.state
        self._seen = state
        if state.runners is before.runners and state.downloads is before.downloads:
            return
        # What was restarted and fails again is a new failure.
        self._tried &= {_key(repair) for repair in repairs(state)}
        self._start()

    def _start(self) -> None:
        if self.task is None and self._untried(self._replica.state):
            self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while todo := self._untried(self._replica.state):
                for repair in todo:
                    self._tried.add(_key(repair))
                    await self._move(repair)
        finally:
            self.task = None

    async def _move(self, repair: Repair) -> None:
        instance_id = repair.instance.instance_id
        try:
            await self._placements.repair(repair.instance)
        except UnknownInstance:
            log.info("%s was deleted, or works again, before it was moved", instance_id)
        except Refusal as refusal:
            log.warning("%s stays where it failed: %s", instance_id, refusal)
            if refusal.kind in NOT_ABOUT_THE_PLAN:
                asyncio.get_running_loop().call_later(RETRY_S, self._retry, _key(repair))
                return
            state = self._placements.state()
            self._append(refused_event(repair, state, refusal.kind, str(refusal)))
        except TimeoutError:
            log.warning("timed out waiting for the master to move %s", instance_id)
        else:
            log.warning("%s was moved: %s", instance_id, repair.reason)

    def _retry(self, key: RepairKey) -> None:
        self._tried.discard(key)
        self._start()

    def _untried(self, state: State) -> list[Repair]:
        if not self._is_master():
            return []
        return [repair for repair in repairs(state) if _key(repair) not in self._tried]


def _key(repair: Repair) -> RepairKey:
    """Not by the reason's text: its figures change while the failure is still the same."""
    runners = repair.instance.shard_assignments.runner_to_shard
    failed = sorted(repair.failed)
    return (repair.instance.instance_id, repair.cause, *failed, *sorted(runners))
