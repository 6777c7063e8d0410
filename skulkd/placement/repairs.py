"""Instances that cannot stay where they are: planned anew, the same model under the same id.

A node was lost: the same width if there are nodes for it, else narrower. A node had too little
memory after all: one node wider. Files could not be brought to a node: elsewhere. Each repair
rules out what failed, so there are never more of them than nodes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from skulkd.placement.built import instance_of
from skulkd.placement.candidates import Circumstances, cluster_of
from skulkd.placement.fresh import make_fresh
from skulkd.placement.planner import plan
from skulkd.placement.promises import loaded_part
from skulkd.placement.refusals import Refusal
from skulkd.placement.wish import Wish
from skulkd.wire.downloads import DownloadFailed
from skulkd.wire.events import Event, InstanceCreated, InstanceDeleted, TaskFailed
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance, MlxJacclInstance, MlxRingInstance
from skulkd.wire.runners import MEMORY_GUARD, STAGING_FAILED, RunnerFailed, obstacle
from skulkd.wire.shards import TensorShardMetadata
from skulkd.wire.state import State

_OPEN = frozenset({"Pending", "Running"})


@dataclass(frozen=True, slots=True)
class Repair:
    """An instance that must move, why, and how."""

    instance: Instance
    reason: str
    min_nodes: int
    excluded: frozenset[NodeId] = frozenset()


def wish_of(instance: Instance) -> Wish:
    """What would be asked for to get such an instance again."""
    shards = list(instance.shard_assignments.runner_to_shard.values())
    tensor = any(isinstance(shard, TensorShardMetadata) for shard in shards)
    return Wish(
        card=shards[0].model_card,
        sharding="Tensor" if tensor else "Pipeline",
        meta="MlxJaccl" if isinstance(instance, MlxJacclInstance) else "MlxRing",
        min_nodes=len(shards),
    )


def replanned(
    instance: Instance,
    state: State,
    around: Circumstances,
    excluded: Iterable[NodeId] = (),
) -> Instance:
    """The same instance on nodes that are here: as wide as it was, or else narrower.

    Raises Refusal, the one of the widest try.
    """
    wish = replace(wish_of(instance), excluded=frozenset(excluded))
    first: Refusal | None = None
    for width in range(wish.min_nodes, 0, -1):
        try:
            return _planned(replace(wish, min_nodes=width), instance, state, around)
        except Refusal as refusal:
            first = first or refusal
    raise first or Refusal("an instance without shards cannot be planned anew: it has no shards")


def repairs(state: State) -> list[Repair]:
    """What has failed and may work elsewhere, in a stable order."""
    found = []
    for _, instance in sorted(state.instances.items()):
        repair = _without_files(instance, state) or _without_room(instance, state)
        if repair is not None:
            found.append(repair)
    return found


def repair_events(repair: Repair, state: State, around: Circumstances) -> list[Event]:
    """The end of an instance where it is and its new beginning elsewhere. Raises Refusal."""
    instance = repair.instance
    wish = replace(wish_of(instance), min_nodes=repair.min_nodes, excluded=repair.excluded)
    rest = {key: value for key, value in state.instances.items() if key != instance.instance_id}
    without = state.model_copy(update={"instances": rest})
    moved = _planned(wish, instance, without, around)
    failed: list[Event] = [
        TaskFailed(task_id=task_id, error_type="instance_moved", error_message=repair.reason)
        for task_id, task in state.tasks.items()
        if task.instance_id == instance.instance_id and task.task_status in _OPEN
    ]
    return [
        *failed,
        InstanceDeleted(instance_id=instance.instance_id),
        InstanceCreated(instance=moved),
    ]


def _planned(wish: Wish, instance: Instance, state: State, around: Circumstances) -> Instance:
    cluster = cluster_of(state, wish.card.model_id, around)
    found = plan(wish, cluster)
    taken = [
        other.ephemeral_port
        for other in state.instances.values()
        if isinstance(other, MlxRingInstance)
    ]
    # New runner ids: the old runners may still be on their way out.
    fresh = make_fresh(len(found.ranks), taken)
    return instance_of(found, cluster.links, replace(fresh, instance_id=instance.instance_id))


def _without_files(instance: Instance, state: State) -> Repair | None:
    """Files could not be brought to a node that waits for them."""
    model_id = instance.shard_assignments.model_id
    refused = {
        node_id: progress.error_message
        for node_id, rows in state.downloads.items()
        for progress in rows
        if isinstance(progress, DownloadFailed)
        and progress.shard_metadata.model_card.model_id == model_id
    }
    refused |= _obstacles(instance, state, STAGING_FAILED)
    here = [node for node in instance.shard_assignments.node_to_runner if node in refused]
    if not here or _serves(instance, state):
        return None
    reason = f"the files of {model_id} could not be brought to {here[0]}: {refused[here[0]]}"
    width = len(instance.shard_assignments.node_to_runner)
    return Repair(instance, reason, width, frozenset(refused))


def _without_room(instance: Instance, state: State) -> Repair | None:
    """A node found too little memory when it came to loading."""
    for node_id, reason in _obstacles(instance, state, MEMORY_GUARD).items():
        width = len(instance.shard_assignments.node_to_runner)
        return Repair(instance, f"{node_id}: {reason}", width + 1)
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
