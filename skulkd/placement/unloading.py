"""Which instances that requests have placed may be unloaded, and which of them first. Pure.

An operator's placement is never among them, nor an instance that has work or is being loaded.
Times are of the monotonic clock of the node that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from skulkd.placement.candidates import PlanInputs, cluster_of
from skulkd.placement.orders import PlaceOrder, with_facts
from skulkd.placement.planner import plan
from skulkd.placement.promises import (
    free_ram,
    free_vram,
    loaded_part,
    promised_bytes,
    shares_of,
)
from skulkd.placement.records import has_work, record_of
from skulkd.placement.refusals import Refusal
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerFailed, RunnerReady, RunnerRunning
from skulkd.wire.state import State

FIRST_USE_S = 30.0
"""An instance that has served nobody yet stays at least so long: somebody waited for it."""


@dataclass(frozen=True, slots=True)
class Use:
    """When an instance last had work, and whether it ever had some."""

    at: float
    served: bool = False


class LastUses:
    """Watches the state for the work of instances that were placed on demand.

    Every node does, so that a new master knows; one that has just started counts from then.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._uses: dict[InstanceId, Use] = {}
        self._busy: frozenset[InstanceId] = frozenset()

    def watch(self, state: State) -> bool:
        """Look at the state after a change. True when instances came, went, or became idle."""
        known = on_demand_instances(state)
        if not known and not self._uses:
            return False
        now = self._clock()
        working = {one.instance_id for one in known if has_work(state, one.instance_id)}
        busy = frozenset(working | {one.instance_id for one in known if is_starting(state, one)})
        before, self._uses = self._uses, {}
        for instance in known:
            key = instance.instance_id
            old = before.get(key, Use(now))
            served = old.served or key in working
            used = key in busy or key in self._busy
            self._uses[key] = Use(now if used else old.at, served)
        changed = before.keys() != self._uses.keys() or bool(self._busy - busy)
        self._busy = busy
        return changed

    def idle_s(self, instance_id: InstanceId) -> float:
        use = self._uses.get(instance_id)
        return 0.0 if use is None else self._clock() - use.at

    def served(self, instance_id: InstanceId) -> bool:
        use = self._uses.get(instance_id)
        return use is not None and use.served


def on_demand_instances(state: State) -> list[Instance]:
    return [one for one in state.instances.values() if record_of(one).on_demand is not None]


def is_starting(state: State, instance: Instance) -> bool:
    """Whether a runner is on its way to serve; one that has failed is not."""
    statuses = [state.runners.get(one) for one in instance.shard_assignments.runner_to_shard]
    if any(isinstance(status, RunnerFailed) for status in statuses):
        return False
    return not all(isinstance(status, RunnerReady | RunnerRunning) for status in statuses)


def is_in_use(state: State, instance: Instance) -> bool:
    return has_work(state, instance.instance_id) or is_starting(state, instance)


def is_awaited(state: State, instance: Instance, uses: LastUses) -> bool:
    """Whether it became ready a moment ago, and those who waited for it have not asked yet."""
    statuses = [state.runners.get(one) for one in instance.shard_assignments.runner_to_shard]
    if any(isinstance(status, RunnerFailed) for status in statuses):
        return False
    key = instance.instance_id
    return not uses.served(key) and uses.idle_s(key) < FIRST_USE_S


def left_s(instance: Instance, uses: LastUses) -> float | None:
    """Seconds until an idle instance is to be unloaded; None: not by time alone."""
    on_demand = record_of(instance).on_demand
    if on_demand is None or on_demand.keep_alive_seconds is None:
        return None
    limit_s = on_demand.keep_alive_seconds
    if not uses.served(instance.instance_id):
        limit_s = max(limit_s, FIRST_USE_S)
    return limit_s - uses.idle_s(instance.instance_id)


def due(state: State, uses: LastUses) -> list[Instance]:
    """Idle instances whose time is over, the longest idle first."""
    return [
        instance
        for instance in unloadable(state, uses)
        if (left := left_s(instance, uses)) is not None and left <= 0
    ]


def next_due_s(state: State, uses: LastUses) -> float | None:
    """Seconds until the next idle instance is due; None when none is going to be."""
    idle = [one for one in on_demand_instances(state) if not is_in_use(state, one)]
    left = [left_s(instance, uses) for instance in idle]
    return min((seconds for seconds in left if seconds is not None), default=None)


def unloadable(state: State, uses: LastUses) -> list[Instance]:
    """Instances placed on demand that nobody uses, the longest idle first."""
    idle = [
        one
        for one in on_demand_instances(state)
        if not (is_in_use(state, one) or is_awaited(state, one, uses))
    ]
    return sorted(idle, key=lambda one: (-uses.idle_s(one.instance_id), one.instance_id))


def victims(order: PlaceOrder, state: State, inputs: PlanInputs, uses: LastUses) -> list[Instance]:
    """Whom to unload so that the order fits: least recently used first, and no more than needed.

    Empty when it would not fit even without all of them; then none should go.
    """
    chosen: list[Instance] = []
    for instance in unloadable(state, uses):
        chosen.append(instance)
        if fits_without(order, state, inputs, chosen):
            break
    else:
        return []
    # The last one made it fit; earlier ones may be on nodes that it does not need.
    for instance in reversed(chosen[:-1]):
        fewer = [one for one in chosen if one is not instance]
        if fits_without(order, state, inputs, fewer):
            chosen = fewer
    return chosen


def fits_without(
    order: PlaceOrder, state: State, inputs: PlanInputs, gone: Collection[Instance]
) -> bool:
    """Whether the order could be placed if these instances were gone."""
    ids = {one.instance_id for one in gone}
    rest = {key: one for key, one in state.instances.items() if key not in ids}
    without = state.model_copy(update={"instances": rest})
    promised = promised_bytes(without)
    freed = _freed(state, gone)
    then = replace(
        with_facts(inputs, order.news),
        credits=_with_freed(free_ram(state), promised, inputs.credits, freed),
        vram_credits=_with_freed(free_vram(state), promised, inputs.vram_credits, freed),
    )
    try:
        plan(order.wish, cluster_of(without, order.card.model_id, then))
    except Refusal:
        return False
    return True


def _freed(state: State, gone: Iterable[Instance]) -> dict[NodeId, int]:
    """By node, what these instances have in memory."""
    freed: dict[NodeId, int] = {}
    for instance in gone:
        for node, need, runner_id in shares_of(instance):
            held = int(need * loaded_part(state.runners.get(runner_id)))
            freed[node] = freed.get(node, 0) + held
    return freed


def _with_freed(
    free: Mapping[NodeId, int],
    promised: Mapping[NodeId, int],
    credits: Mapping[NodeId, int],
    freed: Mapping[NodeId, int],
) -> dict[NodeId, int]:
    """What will be free on the nodes that get something back, and the credits of the others."""
    found = dict(credits)
    for node, given_back in freed.items():
        if node in free:
            now = max(free[node] - promised.get(node, 0), credits.get(node, 0))
            found[node] = now + given_back
    return found
