"""Memory that a reading does not show: promised and not yet taken, deleted and not yet back.

Without the first two placements in a row would be given the same memory; without the second a
model could not follow another that was just deleted, because readings lag behind. Pure, but for
the clock handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from skulkd.placement.memory import Need, planned_need
from skulkd.placement.records import record_of, shape_of
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import (
    RunnerLoading,
    RunnerReady,
    RunnerRunning,
    RunnerStatus,
    RunnerWarmingUp,
)
from skulkd.wire.shards import ShardMetadata, TensorShardMetadata
from skulkd.wire.state import State

CREDIT_S = 30.0


def part_of(shard: ShardMetadata) -> Fraction:
    """The part of the whole model that a rank holds."""
    if isinstance(shard, TensorShardMetadata):
        return Fraction(1, max(1, shard.world_size))
    return Fraction(max(0, shard.end_layer - shard.start_layer), max(1, shard.n_layers))


def loaded_part(status: RunnerStatus | None) -> Fraction:
    """How much of its share a runner has in memory, from 0 to 1."""
    match status:
        case RunnerReady() | RunnerRunning() | RunnerWarmingUp():
            return Fraction(1)
        case RunnerLoading(layers_loaded=done, total_layers=total) if total > 0:
            return Fraction(max(0, min(done, total)), total)
        case _:
            return Fraction(0)


def shares_of(instance: Instance) -> Iterator[tuple[NodeId, int, RunnerId]]:
    """Each node of an instance, the bytes it was promised, and its runner."""
    assignments = instance.shard_assignments
    for node_id, runner_id in assignments.node_to_runner.items():
        yield node_id, need_of_rank(instance, runner_id).total_bytes, runner_id


def need_of_rank(instance: Instance, runner_id: RunnerId, *, as_stored: bool = False) -> Need:
    """What a rank needs, as it was planned: for promises, and for the look before it loads.

    `as_stored`: what it needs when its weights are not unpacked, whatever was planned.
    """
    shard = instance.shard_assignments.runner_to_shard[runner_id]
    unpacked = record_of(instance).unpacked and not as_stored
    return planned_need(shard.model_card, part_of(shard), shape_of(instance), unpacked=unpacked)


def promised_bytes(state: State) -> dict[NodeId, int]:
    """By node, what instances were promised and have not taken yet."""
    promised: dict[NodeId, int] = {}
    for instance in state.instances.values():
        for node_id, need, runner_id in shares_of(instance):
            missing = 1 - loaded_part(state.runners.get(runner_id))
            promised[node_id] = promised.get(node_id, 0) + int(need * missing)
    return promised


@dataclass(frozen=True, slots=True)
class _Credit:
    node_id: NodeId
    available_bytes: int
    """What will be free when the deleted instance is gone, as seen when it was deleted."""
    settled: frozenset[InstanceId]
    """Instances whose memory was taken already then; all others come out of the credit."""
    expires_at: float


def free_ram(state: State) -> dict[NodeId, int]:
    return {node: memory.ram_available.in_bytes for node, memory in state.node_memory.items()}


def free_vram(state: State) -> dict[NodeId, int]:
    """Of the nodes whose GPU has memory of its own."""
    cards = {node: system.accelerator for node, system in state.node_system.items()}
    return {
        node: card.vram_total_bytes - (card.vram_used_bytes or 0)
        for node, card in cards.items()
        if card is not None and card.vram_total_bytes
    }


class TeardownCredits:
    """Remembers for half a minute what instances that were deleted give back."""

    def __init__(
        self, clock: Callable[[], float], free_bytes: Callable[[], Mapping[NodeId, int]]
    ) -> None:
        """`free_bytes` is the latest reading of the nodes that have such memory."""
        self._clock = clock
        self._free_bytes = free_bytes
        self._before = State()
        self._credits: list[_Credit] = []

    def watch(self, state: State) -> None:
        """Look at the state after a change; what has gone since the last look is remembered."""
        before, self._before = self._before, state
        if state.instances is before.instances:
            return
        for instance_id, instance in before.instances.items():
            if instance_id not in state.instances:
                self._note(before, instance_id, instance)

    def available(self, state: State) -> dict[NodeId, int]:
        """By node, what is free or about to be; only nodes that have a credit."""
        now = self._clock()
        self._credits = [credit for credit in self._credits if credit.expires_at > now]
        found: dict[NodeId, int] = {}
        for credit in self._credits:
            left = credit.available_bytes - _taken_since(state, credit)
            found[credit.node_id] = max(left, found.get(credit.node_id, 0))
        return found

    def _note(self, before: State, instance_id: InstanceId, instance: Instance) -> None:
        readings = self._free_bytes()
        known = self.available(before)
        settled = frozenset(
            other_id
            for other_id, other in before.instances.items()
            if other_id != instance_id and _is_loaded(before, other)
        )
        for node_id, need, runner_id in shares_of(instance):
            free = readings.get(node_id)
            if free is None:
                continue
            freed = int(need * loaded_part(before.runners.get(runner_id)))
            now = max(free, known.get(node_id, 0))
            expires_at = self._clock() + CREDIT_S
            self._credits.append(_Credit(node_id, now + freed, settled, expires_at))


def _taken_since(state: State, credit: _Credit) -> int:
    return sum(
        need
        for instance_id, instance in state.instances.items()
        if instance_id not in credit.settled
        for node_id, need, _ in shares_of(instance)
        if node_id == credit.node_id
    )


def _is_loaded(state: State, instance: Instance) -> bool:
    runners = instance.shard_assignments.runner_to_shard
    return all(loaded_part(state.runners.get(runner_id)) == 1 for runner_id in runners)
