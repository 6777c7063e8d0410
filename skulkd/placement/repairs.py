"""Instances that cannot stay where they are: planned anew, the same model under the same id.

A node was lost: the same width if there are nodes for it, else narrower. A node had too little
memory after all: one node wider. Files could not be brought to a node: elsewhere. Each repair
rules out what failed, so there are never more of them than nodes; they are counted in the
instance's record, so that a new master goes on counting. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from skulkd.placement.built import instance_of
from skulkd.placement.candidates import PlanInputs, cluster_of
from skulkd.placement.fresh import make_fresh
from skulkd.placement.planner import plan
from skulkd.placement.promises import loaded_part
from skulkd.placement.records import (
    failed_tasks,
    left_out,
    most_moves,
    moved,
    named,
    nodes_of,
    record_of,
    shape_of,
)
from skulkd.placement.refusals import MovedTooOften, Refusal
from skulkd.placement.wish import Wish
from skulkd.wire.events import (
    Event,
    InstanceCreated,
    InstanceDeleted,
    InstanceMoveRefused,
)
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance, MlxJacclInstance, MlxRingInstance
from skulkd.wire.placement_record import Move, MoveCause
from skulkd.wire.runners import MEMORY_GUARD, STAGING_FAILED, RunnerFailed, obstacle
from skulkd.wire.shards import TensorShardMetadata
from skulkd.wire.state import State


@dataclass(frozen=True, slots=True)
class Repair:
    """An instance that must move, why, and how."""

    instance: Instance
    cause: MoveCause
    reason: str
    min_nodes: int
    failed: Mapping[NodeId, str] = field(default_factory=dict)
    """Nodes that it cannot be on, with what they said."""


def wish_of(instance: Instance) -> Wish:
    """What would be asked for to get such an instance again."""
    shards = list(instance.shard_assignments.runner_to_shard.values())
    tensor = any(isinstance(shard, TensorShardMetadata) for shard in shards)
    return Wish(
        card=shards[0].model_card,
        sharding="Tensor" if tensor else "Pipeline",
        meta="MlxJaccl" if isinstance(instance, MlxJacclInstance) else "MlxRing",
        min_nodes=len(shards),
        shape=shape_of(instance),
    )


def replanned(instance: Instance, state: State, inputs: PlanInputs) -> Instance:
    """An instance that lost a node, on nodes that are here: as wide as it was, or narrower.

    Raises Refusal, the one of the widest try.
    """
    widths = range(len(instance.shard_assignments.runner_to_shard), 0, -1)
    unwanted = left_out(instance, state)
    try:
        return _elsewhere(instance, state, inputs, widths, unwanted)
    except Refusal:
        if not unwanted:
            raise
        # Its own nodes are gone: an excluded node is better than no model.
        return _elsewhere(instance, state, inputs, widths, frozenset())


def _elsewhere(
    instance: Instance,
    state: State,
    inputs: PlanInputs,
    widths: Iterable[int],
    excluded: frozenset[NodeId],
) -> Instance:
    """The instance with the first number of nodes that fits. Raises Refusal, the first one."""
    wish = replace(wish_of(instance), excluded=excluded)
    first: Refusal | None = None
    for width in widths:
        try:
            return _planned(replace(wish, min_nodes=width), instance, state, inputs)
        except Refusal as refusal:
            first = first or refusal
    raise first or Refusal("an instance without shards cannot be planned again: it has no shards")


def repairs(state: State) -> list[Repair]:
    """What has failed and may work elsewhere, in a stable order."""
    found = []
    for _, instance in sorted(state.instances.items()):
        repair = _without_files(instance, state) or _without_room(instance, state)
        if repair is not None:
            found.append(repair)
    return found


def repair_events(repair: Repair, state: State, inputs: PlanInputs) -> list[Event]:
    """The end of an instance where it is and its new beginning elsewhere. Raises Refusal."""
    instance = repair.instance
    move = _next_move(repair, state)
    if move.attempt > (move.most or 0):
        raise MovedTooOften(move.attempt - 1)
    excluded = left_out(instance, state) | set(repair.failed) | set(record_of(instance).failed)
    rest = {key: value for key, value in state.instances.items() if key != instance.instance_id}
    without = state.model_copy(update={"instances": rest})
    found = _elsewhere(instance, without, inputs, [repair.min_nodes], excluded)
    there = nodes_of(found)
    names = named([*move.from_nodes, *there], state)
    move = move.model_copy(update={"to_nodes": there, "names": names})
    told, new = moved(instance, found, move, repair.failed)
    return [
        *failed_tasks(state, {instance.instance_id}, "instance_moved", repair.reason),
        InstanceDeleted(instance_id=instance.instance_id),
        told,
        InstanceCreated(instance=new),
    ]


def refused_event(repair: Repair, state: State, kind: str, why_not: str) -> InstanceMoveRefused:
    """Tells that an instance stays where it failed."""
    move = _next_move(repair, state)
    return InstanceMoveRefused(
        instance_id=repair.instance.instance_id,
        model_id=repair.instance.shard_assignments.model_id,
        nodes=move.from_nodes,
        cause=repair.cause,
        reason=repair.reason,
        refusal=kind,
        why_not=why_not,
        attempt=move.attempt,
        most=move.most or 0,
    )


def _next_move(repair: Repair, state: State) -> Move:
    """The move as far as it is known before it was planned."""
    return Move(
        cause=repair.cause,
        from_nodes=nodes_of(repair.instance),
        to_nodes=[],
        reason=repair.reason,
        attempt=record_of(repair.instance).attempts + 1,
        most=most_moves(state),
    )


def _planned(wish: Wish, instance: Instance, state: State, inputs: PlanInputs) -> Instance:
    cluster = cluster_of(state, wish.card.model_id, inputs)
    found = plan(wish, cluster)
    taken = [
        other.ephemeral_port
        for other in state.instances.values()
        if isinstance(other, MlxRingInstance)
    ]
    # New runner ids: the old runners may still be on their way out.
    fresh = make_fresh(len(found.ranks), taken)
    made = instance_of(found, cluster.links, replace(fresh, instance_id=instance.instance_id))
    kept = {"unpacked": record_of(made).unpacked}
    return made.model_copy(update={"record": record_of(instance).model_copy(update=kept)})


def _without_files(instance: Instance, state: State) -> Repair | None:
    """Files could not be brought to a node that waits for them.

    Its runner says so. What `downloads` says of a node may be of an earlier try.
    """
    failed = _obstacles(instance, state, STAGING_FAILED)
    if not failed or _serves(instance, state):
        return None
    model_id, width = instance.shard_assignments.model_id, len(nodes_of(instance))
    node, why = next(iter(failed.items()))
    name = named([node], state)[node]
    reason = f"the files of {model_id} could not be brought to {name}: {why}"
    return Repair(instance, STAGING_FAILED, reason, width, failed)


def _without_room(instance: Instance, state: State) -> Repair | None:
    """A node found too little memory when it came to loading."""
    for node_id, reason in _obstacles(instance, state, MEMORY_GUARD).items():
        width = len(instance.shard_assignments.node_to_runner)
        name = named([node_id], state)[node_id]
        return Repair(instance, MEMORY_GUARD, f"{name}: {reason}", width + 1)
    return None


def _obstacles(instance: Instance, state: State, kind: str) -> dict[NodeId, str]:
    """By node, what its runner says when the node is the obstacle, and this is how."""
    found: dict[NodeId, str] = {}
    for node_id, runner_id in instance.shard_assignments.node_to_runner.items():
        status = state.runners.get(runner_id)
        if isinstance(status, RunnerFailed) and obstacle(status) == kind:
            found[node_id] = status.error_message or kind
    return found


def _serves(instance: Instance, state: State) -> bool:
    runners = instance.shard_assignments.runner_to_shard
    return all(loaded_part(state.runners.get(runner_id)) == 1 for runner_id in runners)


def find(state: State, instance_id: InstanceId) -> Repair | None:
    """The repair of this instance, if it still needs one."""
    return next(
        (repair for repair in repairs(state) if repair.instance.instance_id == instance_id), None
    )
