"""How an event changes the state: `apply`, total over every event kind.

Pure: no clock, no logging, no I/O. The same events give the same state on every node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, assert_never

from skulkd.cluster import topology
from skulkd.cluster.bridge_cycles import bridge_cycles, cables_of_graph
from skulkd.placement.records import needs_settling, settled, with_on_demand, with_stuck
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.events import (
    ChunkGenerated,
    CustomModelCardAdded,
    CustomModelCardDeleted,
    Event,
    InputChunkReceived,
    InstanceCreated,
    InstanceDeleted,
    InstanceKeepAliveChanged,
    InstanceMoved,
    InstanceMoveRefused,
    InstanceRequested,
    InstanceUnloaded,
    NodeDownloadProgress,
    NodeGatheredInfo,
    NodeLossCleared,
    NodeLost,
    NodeTimedOut,
    RunnerStatusUpdated,
    TaskAcknowledged,
    TaskCreated,
    TaskDeleted,
    TaskFailed,
    TaskStatusUpdated,
    TestEvent,
    TokenCreated,
    TokenRevoked,
    TopologyEdgeCreated,
    TopologyEdgeDeleted,
    TracesCollected,
    TracesMerged,
    TracingStateChanged,
)
from skulkd.wire.gathered import (
    MacThunderboltConnections,
    MacThunderboltIdentifiers,
    NodeNetworkInterfaces,
    ThunderboltBridgeInfo,
)
from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.machine import NodeNetworkInfo, NodeThunderboltInfo
from skulkd.wire.runners import RunnerReady, RunnerRunning, RunnerShutdown, RunnerStatus
from skulkd.wire.state import State
from skulkd.wire.tasks import ImageGeneration, TextEmbedding, TextGeneration

Changes = dict[str, Any]


class OutOfOrder(Exception):
    """An event that is not the next one; the sender must be asked for what is missing."""


def apply(state: State, event: Event, index: int) -> State:
    """The state after the event at `index`. Raises `OutOfOrder` unless it is the next one."""
    if index != state.last_event_applied_idx + 1:
        raise OutOfOrder(f"event {index} after {state.last_event_applied_idx}")
    changes = _changes(state, event)
    return state.model_copy(update={**changes, "last_event_applied_idx": index})


def _changes(state: State, event: Event) -> Changes:  # noqa: PLR0911, PLR0912 - one case per kind
    match event:
        case InstanceCreated():
            return _with_instance(state, event.instance)
        case InstanceDeleted():
            return _without_instances(state, {event.instance_id})
        case InstanceMoveRefused():
            return _stuck(state, event)
        case InstanceKeepAliveChanged():
            return _keep_alive(state, event)
        case RunnerStatusUpdated():
            return _runner_status(state, event)
        case TaskCreated():
            return {"tasks": {**state.tasks, event.task_id: event.task}}
        case TaskStatusUpdated():
            return _task(state, event.task_id, {"task_status": event.task_status})
        case TaskFailed():
            error = {"error_type": event.error_type, "error_message": event.error_message}
            return _task(state, event.task_id, {"task_status": "Failed", **error})
        case TaskDeleted():
            return {"tasks": {k: v for k, v in state.tasks.items() if k != event.task_id}}
        case NodeGatheredInfo():
            return _gathered(state, event)
        case NodeTimedOut():
            return _without_node(state, event.node_id)
        case NodeDownloadProgress():
            return _download(state, event.download_progress)
        case TopologyEdgeCreated():
            return {"topology": topology.with_edge(state.topology, event.conn)}
        case TopologyEdgeDeleted():
            return {"topology": topology.without_edge(state.topology, event.conn)}
        case TracingStateChanged():
            return {"tracing_enabled": event.enabled}
        case (
            TestEvent()
            | InstanceMoved()
            | InstanceRequested()
            | InstanceUnloaded()
            | NodeLost()
            | NodeLossCleared()
            | TaskAcknowledged()
            | ChunkGenerated()
            | InputChunkReceived()
            | TracesCollected()
            | TracesMerged()
            | CustomModelCardAdded()
            | CustomModelCardDeleted()
            | TokenCreated()
            | TokenRevoked()
        ):
            return {}
        case _ as unreachable:
            assert_never(unreachable)


def _with_instance(state: State, instance: Instance) -> Changes:
    """A new instance, or another shape of a known one: runners it no longer has are gone."""
    instances = {**state.instances, instance.instance_id: instance}
    owned = {
        runner_id
        for known in instances.values()
        for runner_id in known.shard_assignments.runner_to_shard
    }
    return {
        "instances": instances,
        "runners": {k: v for k, v in state.runners.items() if k in owned},
    }


def _without_instances(state: State, gone: Collection[InstanceId]) -> Changes:
    """Instances leave with their runners and tasks."""
    runners = {
        runner_id
        for instance_id in gone
        if (instance := state.instances.get(instance_id)) is not None
        for runner_id in instance.shard_assignments.runner_to_shard
    }
    return {
        "instances": {k: v for k, v in state.instances.items() if k not in gone},
        "runners": {k: v for k, v in state.runners.items() if k not in runners},
        "tasks": {k: v for k, v in state.tasks.items() if v.instance_id not in gone},
    }


def _runner_status(state: State, event: RunnerStatusUpdated) -> Changes:
    runner_id = event.runner_id
    owner = next(
        (
            instance
            for instance in state.instances.values()
            if runner_id in instance.shard_assignments.runner_to_shard
        ),
        None,
    )
    if isinstance(event.runner_status, RunnerShutdown) or owner is None:
        return {"runners": {k: v for k, v in state.runners.items() if k != runner_id}}
    runners = {**state.runners, runner_id: event.runner_status}
    if needs_settling(owner) and _serves(owner, runners):
        return {"runners": runners, **_changed_instance(state, settled(owner))}
    return {"runners": runners}


def _serves(instance: Instance, runners: Mapping[RunnerId, RunnerStatus]) -> bool:
    ranks = instance.shard_assignments.runner_to_shard
    return all(isinstance(runners.get(rank), RunnerReady | RunnerRunning) for rank in ranks)


def _stuck(state: State, event: InstanceMoveRefused) -> Changes:
    instance = state.instances.get(event.instance_id)
    if instance is None:
        return {}
    return _changed_instance(state, with_stuck(instance, event.why_not))


def _keep_alive(state: State, event: InstanceKeepAliveChanged) -> Changes:
    instance = state.instances.get(event.instance_id)
    if instance is None:
        return {}
    return _changed_instance(state, with_on_demand(instance, event.on_demand))


def _changed_instance(state: State, instance: Instance) -> Changes:
    return {"instances": {**state.instances, instance.instance_id: instance}}


def _task(state: State, task_id: TaskId, update: Changes) -> Changes:
    """A changed task; error fields exist on requests only and are cleared by other statuses."""
    task = state.tasks.get(task_id)
    if task is None:
        return {}
    changed: Changes = {"task_status": update["task_status"]}
    if isinstance(task, TextGeneration | ImageGeneration | TextEmbedding):
        if update["task_status"] != "Failed":
            changed |= {"error_type": None, "error_message": None}
        changed |= update
    return {"tasks": {**state.tasks, task_id: task.model_copy(update=changed)}}


def _gathered(state: State, event: NodeGatheredInfo) -> Changes:
    node_id = event.node_id
    graph = topology.with_node(state.topology, node_id)
    seen: Changes = {"last_seen": {**state.last_seen, node_id: event.when}, "topology": graph}
    info = event.info
    match info:
        case NodeNetworkInterfaces():
            network = NodeNetworkInfo(interfaces=info.interfaces)
            return {**seen, "node_network": {**state.node_network, node_id: network}}
        case MacThunderboltIdentifiers():
            ports = NodeThunderboltInfo(interfaces=info.interfaces)
            return {**seen, "node_thunderbolt": {**state.node_thunderbolt, node_id: ports}}
        case MacThunderboltConnections():
            links = topology.rdma_edges(info.connections, state.node_thunderbolt, node_id)
            graph = topology.with_rdma_edges(graph, node_id, links)
            cycles = bridge_cycles(cables_of_graph(graph), state.node_thunderbolt_bridge)
            return {**seen, "topology": graph, "thunderbolt_bridge_cycles": cycles}
        case ThunderboltBridgeInfo():
            bridges = {**state.node_thunderbolt_bridge, node_id: info.status}
            cycles = bridge_cycles(cables_of_graph(graph), bridges)
            return {**seen, "node_thunderbolt_bridge": bridges, "thunderbolt_bridge_cycles": cycles}
        case _ as unreachable:
            assert_never(unreachable)


def _without_node(state: State, node_id: NodeId) -> Changes:
    """A node leaves with its rows, its edges, and every instance that touched it."""
    touched = {k for k, instance in state.instances.items() if _touches(instance, node_id)}
    graph = topology.without_node(state.topology, node_id)
    bridges = _drop(state.node_thunderbolt_bridge, node_id)
    return {
        **_without_instances(state, touched),
        "topology": graph,
        "downloads": _drop(state.downloads, node_id),
        "last_seen": _drop(state.last_seen, node_id),
        "node_network": _drop(state.node_network, node_id),
        "node_thunderbolt": _drop(state.node_thunderbolt, node_id),
        "node_thunderbolt_bridge": bridges,
        "thunderbolt_bridge_cycles": bridge_cycles(cables_of_graph(graph), bridges),
    }


def _touches(instance: Instance, node_id: NodeId) -> bool:
    return node_id in instance.shard_assignments.node_to_runner


def _drop(rows: dict[NodeId, Any], node_id: NodeId) -> dict[NodeId, Any]:
    return {key: row for key, row in rows.items() if key != node_id}


def _download(state: State, progress: DownloadProgress) -> Changes:
    """One entry per node and model; a later one takes the place of the earlier."""
    model_id = progress.shard_metadata.model_card.model_id
    entries = list(state.downloads.get(progress.node_id, ()))
    for position, entry in enumerate(entries):
        if entry.shard_metadata.model_card.model_id == model_id:
            entries[position] = progress
            break
    else:
        entries.append(progress)
    return {"downloads": {**state.downloads, progress.node_id: entries}}
