"""Unloading instances that requests have placed: after their keep-alive, for room, or when asked.

The master decides when; rank 0's node, which accepts requests, confirms that an instance has no
work and accepts none while it is being unloaded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from skulkd.cluster.journal import Journal
from skulkd.cluster.replica import Replica
from skulkd.peers import PeerError, Peers
from skulkd.placement.orders import KeepOrder, UnloadOrder
from skulkd.placement.records import rank_zero_node, record_of
from skulkd.placement.refusals import InstanceBusy, NotOnDemand, Refusal, UnknownInstance
from skulkd.placement.unloading import (
    LastUses,
    due,
    is_in_use,
    left_s,
    next_due_s,
    on_demand_instances,
)
from skulkd.scheduling.placements import Placements
from skulkd.wire.ids import InstanceId, ModelId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.placement_record import OnDemand, UnloadCause

HOLD = "instance.hold"
HOLD_S = 20.0
"""Longer than a command to the master takes, so that no request slips in before its end."""
HOLD_DEADLINE_S = 3.0
RETRY_S = 5.0
LONGEST_PAUSE_S = 60.0
CHANGED = frozenset(kind.__name__ for kind in (InstanceBusy, NotOnDemand, UnknownInstance))
"""Refusals of an instance that is not what it was when it was chosen."""

log = logging.getLogger(__name__)

Hold = Callable[[InstanceId, float], bool]
"""Whether an instance has no work here; then it accepts none for so many seconds."""


class Unloads:
    """`run` it on every node; it acts on the master only."""

    def __init__(
        self,
        placements: Placements,
        replica: Replica,
        journal: Journal,
        peers: Peers,
        is_master: Callable[[], bool],
        hold: Hold,
    ) -> None:
        self._placements = placements
        self._replica = replica
        self._peers = peers
        self._is_master = is_master
        self._hold = hold
        self._wake = asyncio.Event()
        self._retry_at: dict[InstanceId, float] = {}
        self._keeping: set[asyncio.Task[None]] = set()
        self.uses = LastUses(time.monotonic)
        self.counts: Counter[UnloadCause] = Counter()
        """Of instances that this node had unloaded."""
        journal.on_change(self._on_change)
        peers.serve(HOLD, self._answer_hold)

    async def run(self) -> None:
        """Unload what is idle for too long, until cancelled."""
        while True:
            self._wake.clear()
            pause_s = await self._unload_due() if self._is_master() else RETRY_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def instances(self) -> list[Instance]:
        """Those that were placed on demand."""
        return on_demand_instances(self._replica.state)

    def in_use(self, instance: Instance) -> bool:
        return is_in_use(self._replica.state, instance)

    def unloads_at(self, instance: Instance) -> datetime | None:
        """When it goes unless it is used before; None while it is used, or not by time alone."""
        left = None if self.in_use(instance) else left_s(instance, self.uses)
        return None if left is None else datetime.now(UTC) + timedelta(seconds=max(0.0, left))

    def keep(self, instance: Instance, keep_alive_s: float) -> None:
        """Change how long an instance stays; nothing for an operator's. Does not wait."""
        wanted = on_demand(keep_alive_s)
        if record_of(instance).on_demand in (None, wanted):
            return
        task = asyncio.create_task(self._keep(instance, wanted))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def unload(
        self, instance: Instance, cause: UnloadCause, wanted_by: ModelId | None = None
    ) -> bool:
        """False when it has work after all, has changed, or its node does not answer.

        Raises Refusal.
        """
        instance_id = instance.instance_id
        node = rank_zero_node(instance)
        body = json.dumps({"instanceId": instance_id, "seconds": HOLD_S}).encode()
        try:
            answer = await self._peers.ask(node, HOLD, body, deadline_s=HOLD_DEADLINE_S)
        except PeerError as error:
            log.info("%s is not unloaded now: %s", instance_id, error)
            return False
        if not json.loads(answer)["held"]:
            return False
        idle_s = self.uses.idle_s(instance_id)
        order = UnloadOrder(
            instance_id=instance_id, cause=cause, idle_seconds=idle_s, wanted_by=wanted_by
        )
        try:
            await self._placements.unload(order)
        except Refusal as refusal:
            if refusal.kind not in CHANGED:
                raise
            log.info("%s is not unloaded: %s", instance_id, refusal)
            return False
        self.counts[cause] += 1
        why = {
            "idle": f"idle for {idle_s:.0f} s",
            "memory": f"{wanted_by} needs its memory",
            "request": "a client asked for it",
        }
        log.info(
            "unloaded %s (%s): %s", instance.shard_assignments.model_id, instance_id, why[cause]
        )
        return True

    async def unload_when_idle(self, instance: Instance) -> bool:
        """Unload now, or as soon as its work is done: False. Raises Refusal."""
        if await self.unload(instance, "request"):
            return True
        order = KeepOrder(instance_id=instance.instance_id, on_demand=on_demand(0.0))
        await self._placements.keep(order)
        return False

    async def _keep(self, instance: Instance, wanted: OnDemand) -> None:
        try:
            await self._placements.keep(
                KeepOrder(instance_id=instance.instance_id, on_demand=wanted)
            )
        except (Refusal, TimeoutError) as error:
            log.warning("keep_alive of %s was not changed: %s", instance.instance_id, error)

    async def _unload_due(self) -> float:
        """Seconds until there may be something to do."""
        now = time.monotonic()
        for instance in due(self._replica.state, self.uses):
            if self._retry_at.get(instance.instance_id, now) > now:
                continue
            if not await self._unload_idle(instance):
                self._retry_at[instance.instance_id] = time.monotonic() + RETRY_S
        state = self._replica.state
        self._retry_at = {key: at for key, at in self._retry_at.items() if key in state.instances}
        next_s = next_due_s(state, self.uses)
        if next_s is not None and next_s <= 0:
            return RETRY_S
        return LONGEST_PAUSE_S if next_s is None else min(next_s, LONGEST_PAUSE_S)

    async def _unload_idle(self, instance: Instance) -> bool:
        try:
            return await self.unload(instance, "idle")
        except (Refusal, TimeoutError) as error:
            log.info("%s is not unloaded now: %s", instance.instance_id, error)
            return False

    def _on_change(self) -> None:
        if self.uses.watch(self._replica.state):
            self._wake.set()

    async def _answer_hold(self, _asker: NodeId, body: bytes) -> bytes:
        asked = json.loads(body)
        held = self._hold(InstanceId(asked["instanceId"]), float(asked["seconds"]))
        return json.dumps({"held": held}).encode()


def on_demand(keep_alive_s: float) -> OnDemand:
    return OnDemand(keep_alive_seconds=None if math.isinf(keep_alive_s) else keep_alive_s)
