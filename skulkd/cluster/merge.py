"""Merging placements of another cluster, a record or lost nodes into the journal.

Pure: takes states, returns events and lines for the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar, assert_never

from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.messages import Deletion, HandOver, Placement
from skulkd.placement.records import failed_tasks
from skulkd.wire.events import (
    Event,
    InstanceCreated,
    InstanceDeleted,
    NodeDownloadProgress,
    NodeTimedOut,
    RunnerStatusUpdated,
    TaskCreated,
)
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance, MlxJacclInstance, MlxRingInstance
from skulkd.wire.state import State

_V = TypeVar("_V")

NODE_LOST = "node_lost"


def model_of(instance: Instance) -> str:
    return str(instance.shard_assignments.model_id)


def describe(instance: Instance) -> str:
    return f"instance {instance.instance_id} ({model_of(instance)})"


def loss_events(state: State, node: NodeId, name: str) -> list[Event]:
    """The events of a lost node: its requests fail, then the node and its data are removed."""
    touched = {
        instance_id
        for instance_id, instance in state.instances.items()
        if node in instance.shard_assignments.node_to_runner
    }
    message = f"node {name} ({node}) was lost while it worked on this request; try again"
    return [*failed_tasks(state, touched, NODE_LOST, message), NodeTimedOut(node_id=node)]


def known_nodes(state: State) -> set[NodeId]:
    """Every node that the state names."""
    placed = {
        node
        for instance in state.instances.values()
        for node in instance.shard_assignments.node_to_runner
    }
    return placed | set(state.downloads) | set(state.topology.nodes) | set(state.last_seen)


def adopt(
    journal: JournalReplica, alive: Collection[NodeId], hand_over: HandOver
) -> tuple[list[Event], list[str]]:
    """Adopt the instances, tasks and downloads of another cluster that do not conflict."""
    own, foreign = journal.state, hand_over.state
    events: list[Event] = []
    notes: list[str] = []
    kept: set[InstanceId] = set()
    for instance_id, instance in foreign.instances.items():
        if journal.deleted_since(instance_id, hand_over.deletions):
            notes.append(f"{describe(instance)} was not kept: it was deleted meanwhile")
            continue
        why = _why_not(own, alive, instance, hand_over.names)
        if why is None:
            kept.add(instance_id)
            events.append(InstanceCreated(instance=instance))
        elif why:
            notes.append(f"{describe(instance)} was not kept: {why}")
    owned = {
        runner
        for instance_id in kept
        for runner in foreign.instances[instance_id].shard_assignments.runner_to_shard
    }
    events += [
        RunnerStatusUpdated(runner_id=runner, runner_status=status)
        for runner, status in foreign.runners.items()
        if runner in owned
    ]
    events += [
        TaskCreated(task_id=task_id, task=task)
        for task_id, task in foreign.tasks.items()
        if task.instance_id in kept and task_id not in own.tasks
    ]
    events += [
        NodeDownloadProgress(download_progress=progress)
        for node, rows in foreign.downloads.items()
        if node in alive
        for progress in rows
        if progress not in own.downloads.get(node, ())
    ]
    return events, notes


def missing_deletions(
    journal: JournalReplica, deletions: Iterable[Deletion], standing: Collection[InstanceId]
) -> tuple[list[InstanceDeleted], list[str]]:
    """Deletions of another history that this journal lacks, except of instances in `standing`.

    They keep their event ids, so that a deletion that arrives twice is recognised.
    """
    events = [
        InstanceDeleted(event_id=one.event_id, instance_id=one.instance_id)
        for one in deletions
        if one.event_id not in journal.deletions and one.instance_id not in standing
    ]
    here = journal.state.instances
    notes = [
        f"{describe(here[one.instance_id])} was deleted on the other side"
        for one in events
        if one.instance_id in here
    ]
    return events, notes


def _why_not(
    own: State, alive: Collection[NodeId], instance: Instance, names: Mapping[NodeId, str]
) -> str | None:
    """Why it cannot be kept; None when it can, an empty text when it is here already."""
    known = own.instances.get(instance.instance_id)
    if known is not None:
        same = known.shard_assignments == instance.shard_assignments
        return "" if same else "it was placed on other nodes meanwhile"
    missing = [
        names.get(node, str(node))
        for node in instance.shard_assignments.node_to_runner
        if node not in alive
    ]
    return f"not in the cluster: {', '.join(missing)}" if missing else None


def on_same_nodes(placement: Placement, here: Mapping[str, NodeId]) -> Instance | None:
    """The instance on the nodes that have the old names now; None while one is missing."""
    renamed: dict[NodeId, NodeId] = {}
    for node, name in placement.names.items():
        if name not in here:
            return None
        renamed[node] = here[name]
    return with_nodes(placement.instance, renamed)


def with_nodes(instance: Instance, renamed: Mapping[NodeId, NodeId]) -> Instance:
    """The same instance on nodes with other ids."""
    shards = instance.shard_assignments
    assignments = shards.model_copy(
        update={"node_to_runner": _rekeyed(shards.node_to_runner, renamed)}
    )
    changes: dict[str, object] = {"shard_assignments": assignments}
    match instance:
        case MlxRingInstance():
            changes["hosts_by_node"] = _rekeyed(instance.hosts_by_node, renamed)
        case MlxJacclInstance():
            changes["jaccl_coordinators"] = _rekeyed(instance.jaccl_coordinators, renamed)
        case _ as unreachable:
            assert_never(unreachable)
    return instance.model_copy(update=changes)


def _rekeyed(rows: Mapping[NodeId, _V], renamed: Mapping[NodeId, NodeId]) -> dict[NodeId, _V]:
    return {renamed.get(node, node): row for node, row in rows.items()}


def unique_name(wanted: str, taken: Collection[str]) -> str:
    """The wanted name, with the first free number appended if it is taken."""
    if wanted not in taken:
        return wanted
    number = 2
    while f"{wanted}-{number}" in taken:
        number += 1
    return f"{wanted}-{number}"
