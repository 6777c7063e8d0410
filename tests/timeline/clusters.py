"""Clusters made by hand, in the shape of the daemon's answers."""

from __future__ import annotations

from typing import Any

from skulkctl.daemon.members import Members, from_view
from skulkctl.daemon.state import ClusterState
from skulkctl.nodes.rows import node_items, with_lost
from skulkctl.timeline.frames import Cluster
from skulkd.wire.base import Memory
from skulkd.wire.cluster import ClusterView
from skulkd.wire.event_stream import EventLine
from skulkd.wire.load import ClusterLoad
from skulkd.wire.logs import LogLine
from skulkd.wire.machine import DiskUsage, MemoryUsage
from skulkd.wire.storage import ClusterStorage
from skulkd.wire.tracing import TraceItems, TraceResponse
from tests.cli.builders import as_json, downloads, ongoing, some_shards
from tests.timeline.builders import INSTANCE, MODEL, TASK, at

GIB = 1 << 30
LONG = "a-node-with-a-name-of-sixty-characters-which-nobody-would-type"
ARABIC, WIDE_LETTERS = "org/نموذج-اللغة-العربية", "組織/大規模言語模型-72B"


def a_cluster(count: int = 4, **parts: Any) -> Cluster:
    """So many healthy nodes; `parts` replace those of the state."""
    ids = [f"node-{number}" for number in range(count)]
    names = parts.pop("names", {node: f"kite{number + 1}" for number, node in enumerate(ids)})
    lost = parts.pop("lost", [])
    document = {
        "lastSeen": dict.fromkeys(ids, at(1)),
        "topology": {"nodes": ids, "connections": {}},
        "nodeIdentities": {
            node: {"friendlyName": names[node], "skulkVersion": "0.1.0"} for node in ids
        },
        "nodeHealth": {node: {"level": "ok", "reasons": []} for node in ids},
        "nodeMemory": {node: as_json(memory(36, 9 + number % 5 * 4))
                       for number, node in enumerate(ids)},
        "nodeDisk": {node: as_json(disk(900, 40 + number % 7 * 90))
                     for number, node in enumerate(ids)},
        "nodeSystem": {
            node: {"pcpuUsage": 10.0 + number % 9 * 10, "gpuUsage": 5.0 + number % 8 * 12,
                   "temp": 40.0 + number % 30, "sysPower": 9.0 + number}
            for number, node in enumerate(ids)
        },
        **parts,
    }  # fmt: skip
    state = ClusterState(document)
    members = _members(ids, names, lost)
    nodes = with_lost(node_items(state, members), members.lost)
    return Cluster(state, nodes, members, None, load(4, 2))


def _members(ids: list[str], names: dict[str, str], lost: list[dict[str, Any]]) -> Members:
    """Everybody reaches everybody, and the first one leads."""
    kinds = ("thunderbolt", "ethernet", "wifi")
    nodes = [
        {"nodeId": node, "name": names[node], "isMaster": node == ids[0],
         "isLocal": node == ids[0], "ok": True, "uptimeSeconds": 7500.0, "roundTripMs": 0.4,
         "version": "0.1.0", "draining": False,
         "links": [{"sink": other, "host": "10.0.0.1", "port": 1, "latencyMs": 0.2 + number * 7,
                    "interfaceType": kinds[number % 3]}
                   for number, other in enumerate(ids[:4]) if other != node]}
        for node in ids[:4]
    ]  # fmt: skip
    nodes += [
        {"nodeId": node, "name": names[node], "isMaster": False, "isLocal": False, "ok": True}
        for node in ids[4:]
    ]
    view = {"generatedAt": at(0), "localNodeId": ids[0] if ids else "n", "nodes": nodes,
            "masterNodeId": ids[0] if ids else None, "lost": lost}  # fmt: skip
    return from_view(ClusterView.model_validate(view))


def memory(total: int, free: int) -> MemoryUsage:
    return MemoryUsage(
        ram_total=Memory.of(total * GIB),
        ram_available=Memory.of(free * GIB),
        swap_total=Memory(),
        swap_available=Memory(),
    )


def disk(total: int, free: int) -> DiskUsage:
    return DiskUsage(total=Memory.of(total * GIB), available=Memory.of(free * GIB))


def load(active: int, queued: int) -> ClusterLoad:
    one = {"maxConcurrency": 8, "activeJobs": active, "queuedJobs": queued, "freeSlots": 4}
    none = {"maxConcurrency": 0, "activeJobs": 0, "queuedJobs": 0, "freeSlots": 0}
    classes = {"chat": one, "agentic": none, "genericJob": none}
    node = {**one, "classes": classes, "nodeId": "node-0", "name": "kite1", "draining": False,
            "catalogFingerprint": "f"}  # fmt: skip
    total = {**one, "classes": classes, "nodes": 1, "drainingNodes": 0}
    return ClusterLoad.model_validate(
        {"localNodeId": "node-0", "node": node, "nodes": [], "total": total}
    )


def instance(ranks: int = 4, model: str = MODEL) -> dict[str, Any]:
    """An instance over the first nodes, as the state has it, with layers to scale."""
    runners = {f"node-{number}": f"runner-{INSTANCE}-{number}" for number in range(ranks)}
    shards = as_json(some_shards(model, **runners))
    layers = 12 * ranks
    for number, runner in enumerate(runners.values()):
        [shard] = shards["runnerToShard"][runner].values()
        shard |= {"startLayer": 12 * number, "endLayer": 12 * number + 12, "nLayers": layers}
    body = {"instanceId": INSTANCE, "shardAssignments": shards, "hostsByNode": {},
            "ephemeralPort": 1}  # fmt: skip
    return {INSTANCE: {"MlxRingInstance": body}}


def statuses(ranks: int, kind: str = "RunnerRunning", **fields: Any) -> dict[str, Any]:
    return {f"runner-{INSTANCE}-{number}": {kind: fields} for number in range(ranks)}


def staging(ranks: int = 2) -> Cluster:
    """The files of the last rank are on their way."""
    states = statuses(ranks, "RunnerIdle")
    moving = ongoing("node-1", MODEL, 4 * GIB, 6 * GIB, 210e6, 11000)
    return a_cluster(
        ranks, instances=instance(ranks), runners=states, downloads=downloads(**{"node-1": moving})
    )


def many_copies(count: int) -> ClusterStorage:
    """A node with so many staged models."""
    copies = [
        {"modelId": f"org/model-{number:03}-instruct-4bit", "directory": f"/m/{number}",
         "sizeBytes": (number % 40 + 1) * GIB // 8, "lastUsedEpochSeconds": 0.0,
         "inUse": number == 0, "inUseBy": ["placed"] if number == 0 else []}
        for number in range(count)
    ]  # fmt: skip
    staged = sum(copy["sizeBytes"] for copy in copies)
    storage = {
        "nodeId": "node-0", "stagingRoot": "/m", "stagedModels": copies,
        "stagedTotalBytes": staged, "eventLogBytes": 3 * GIB, "diskTotalBytes": 1800 * GIB,
        "diskFreeBytes": 700 * GIB, "keepRecentBytes": 50 * GIB,
        "nextEviction": ["org/model-001-instruct-4bit"], "nextEvictionBytes": 90 * GIB,
        "logBytes": GIB,
    }  # fmt: skip
    silent = {"nodeId": "node-1", "name": "kite2", "ok": False, "error": "no answer in 5 s"}
    whole = {"nodeId": "node-0", "name": "kite1", "ok": True, "storage": storage}
    return ClusterStorage.model_validate({"nodes": [whole, silent]})


def traces() -> TraceItems:
    item = {"taskId": TASK, "createdAt": at(30), "fileSize": 70_000, "modelId": MODEL,
            "ranks": [0, 1], "worldSize": 2}  # fmt: skip
    return TraceItems.model_validate({"traces": [item]})


def trace() -> TraceResponse:
    """Two ranks: a prompt, a prefill and a decode each."""
    spans = [("prompt_build", "prompt", 0, 12_000), ("prefill", "prefill", 12_000, 90_000),
             ("first_token", "lifecycle", 102_000, 0),
             ("decode", "decode", 102_000, 2_500_000)]  # fmt: skip
    events = [
        {"name": name, "category": category, "startUs": start, "durationUs": took, "rank": rank}
        for rank in range(2)
        for name, category, start, took in spans
    ]
    return TraceResponse.model_validate({"taskId": TASK, "traces": events})


def happened() -> list[EventLine]:
    """A request on rank 0 of the usual instance, and a lost node."""
    runner = f"runner-{INSTANCE}-0"
    told: list[tuple[float, dict[str, Any]]] = [
        (50, {"InstanceCreated": {"instance": {"MlxRingInstance": {"instanceId": INSTANCE}}}}),
        (45, {"RunnerStatusUpdated": {"runner_id": runner, "runner_status": {"RunnerReady": {}}}}),
        (41, {"TaskCreated": {"task_id": TASK, "task": {"instance_id": INSTANCE}}}),
        (40, {"TaskStatusUpdated": {"task_id": TASK, "task_status": "Running"}}),
        (30, {"NodeTimedOut": {"node_id": "node-3"}}),
    ]
    return [
        EventLine(index=number, at=at(ago_s), kind=next(iter(event)), event=event)
        for number, (ago_s, event) in enumerate(told)
    ]


def logged() -> list[LogLine]:
    told = [("INFO", "kite2 joined"), ("WARNING", "kite3 is slow"), ("ERROR", "kite4 is lost")]
    return [LogLine(at=at(60 - 10 * n), level=level, text=text)
            for n, (level, text) in enumerate(told)]  # fmt: skip
