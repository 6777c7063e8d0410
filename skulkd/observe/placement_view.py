"""Placements as diagnostics show them, analysed from the state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skulkd.observe.warnings import (
    disagreements,
    master_warnings,
    phase_warnings,
    supervisor_warnings,
)
from skulkd.wire.diagnostics import (
    InstancePlacementDiagnostics,
    NodeDiagnostics,
    PlacementRunnerDiagnostics,
    RunnerSupervisorDiagnostics,
    RunnerTaskDiagnostics,
)
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.instances import Instance
from skulkd.wire.state import State
from skulkd.wire.tasks import BaseRequestTask, Task

UNKNOWN = "Unknown"


def view_placements(
    state: State,
    supervisors: Iterable[RunnerSupervisorDiagnostics],
    node_id: NodeId,
    master_id: NodeId | None,
) -> tuple[list[InstancePlacementDiagnostics], list[str]]:
    """Every placement with its warnings, and all warnings of the node, sorted and unique."""
    bare = [_view(instance, state, node_id, master_id) for instance in state.instances.values()]
    supervisors = list(supervisors)
    found = [*supervisor_warnings(supervisors, state, bare), *phase_warnings(supervisors)]
    everything = {text for _, text in found}
    placements = []
    for placement in bare:
        texts = {text for instance_id, text in found if instance_id == placement.instance_id}
        texts |= set(master_warnings(placement))
        everything |= texts
        placements.append(placement.model_copy(update={"warnings": sorted(texts)}))
    return placements, sorted(everything)


def with_disagreements(bundles: Sequence[NodeDiagnostics]) -> list[NodeDiagnostics]:
    """The bundles of all nodes, each warning where ranks on different nodes disagree."""
    records = [record for bundle in bundles for record in bundle.supervisor_runners]
    found = list(disagreements(records))
    return [_warned(bundle, found) for bundle in bundles] if found else list(bundles)


def _warned(bundle: NodeDiagnostics, found: Sequence[tuple[InstanceId, str]]) -> NodeDiagnostics:
    placements = [
        placement.model_copy(
            update={
                "warnings": sorted(
                    {
                        *placement.warnings,
                        *(text for owner, text in found if owner == placement.instance_id),
                    }
                )
            }
        )
        for placement in bundle.placements
    ]
    mine = {placement.instance_id for placement in placements}
    texts = {*bundle.warnings, *(text for owner, text in found if owner in mine)}
    return bundle.model_copy(update={"placements": placements, "warnings": sorted(texts)})


def _view(
    instance: Instance, state: State, node_id: NodeId, master_id: NodeId | None
) -> InstancePlacementDiagnostics:
    assignments = instance.shard_assignments
    tasks = [task for task in state.tasks.values() if task.instance_id == instance.instance_id]
    runners = [
        _runner(instance, owner, runner_id, state, node_id, master_id, tasks)
        for owner, runner_id in assignments.node_to_runner.items()
    ]
    return InstancePlacementDiagnostics(
        instance_id=instance.instance_id,
        model_id=assignments.model_id,
        master_node_id=master_id,
        master_is_placement_node=master_id in assignments.node_to_runner,
        local_node_is_placement_node=node_id in assignments.node_to_runner,
        placement_node_ids=list(assignments.node_to_runner),
        runners=sorted(runners, key=lambda runner: runner.device_rank),
    )


def _runner(
    instance: Instance,
    owner: NodeId,
    runner_id: RunnerId,
    state: State,
    node_id: NodeId,
    master_id: NodeId | None,
    tasks: list[Task],
) -> PlacementRunnerDiagnostics:
    shard = instance.shard_assignments.runner_to_shard[runner_id]
    status = state.runners.get(runner_id)
    identity = state.node_identities.get(owner)
    named = identity is not None and identity.friendly_name != UNKNOWN
    return PlacementRunnerDiagnostics(
        runner_id=runner_id,
        node_id=owner,
        friendly_name=identity.friendly_name if identity is not None and named else None,
        status_kind=None if status is None else type(status).__name__,
        device_rank=shard.device_rank,
        world_size=shard.world_size,
        start_layer=shard.start_layer,
        end_layer=shard.end_layer,
        n_layers=shard.n_layers,
        is_local=owner == node_id,
        is_master=owner == master_id,
        tasks=[_task(task, runner_id, instance) for task in tasks],
    )


def _task(task: Task, runner_id: RunnerId, instance: Instance) -> RunnerTaskDiagnostics:
    return RunnerTaskDiagnostics(
        task_id=task.task_id,
        task_kind=type(task).__name__,
        task_status=task.task_status,
        instance_id=task.instance_id,
        command_id=task.command_id if isinstance(task, BaseRequestTask) else None,
        runner_id=runner_id,
        model_id=instance.shard_assignments.model_id,
    )
