"""Instances as rows: a placed model and how many of its runners are ready. Pure."""

from __future__ import annotations

from skulkctl.tables import Column, Resource, plain
from skulkctl.views.nodes import node_name
from skulkctl.views.read import Document, mapping, tagged, text

READY = ("RunnerReady", "RunnerRunning")


def short_instance(value: object) -> str:
    return plain(value)[:8]


INSTANCES = Resource(
    kind="InstanceList",
    name_path="id",
    columns=(
        Column("instance", "id", "Id of the instance, shortened.", text=short_instance),
        Column("model", "modelId", "Model that is placed."),
        Column("ready", "ready", "Runners that are ready, of all."),
        Column("status", "status", "ready, starting or failed.", status=True),
        Column("nodes", "nodes", "Nodes that hold a shard, by rank."),
    ),
)


def instance_items(state: object) -> list[dict[str, object]]:
    """One item per instance, by model and id."""
    items = [_item(state, instance_id) for instance_id in mapping(state, "instances")]
    return sorted(items, key=lambda item: (str(item["modelId"]), str(item["id"])))


def _item(state: object, instance_id: str) -> dict[str, object]:
    kind, body = tagged(mapping(state, "instances").get(instance_id))
    by_node = mapping(body, "shardAssignments", "nodeToRunner")
    runners = [_runner(state, node_id, str(runner)) for node_id, runner in by_node.items()]
    ready = sum(runner["status"] in READY for runner in runners)
    failed = [runner for runner in runners if runner["status"] == "RunnerFailed"]
    status = "failed" if failed else "ready" if runners and ready == len(runners) else "starting"
    return {
        "id": instance_id,
        "kind": kind or None,
        "modelId": text(body, "shardAssignments", "modelId"),
        "status": status,
        "ready": f"{ready}/{len(runners)}",
        "readyRunners": ready,
        "totalRunners": len(runners),
        "nodes": [runner["node"] for runner in runners],
        "runners": runners,
    }


def _runner(state: object, node_id: str, runner_id: str) -> Document:
    # The runner map may lag behind the instance map; then the status is not known yet.
    status, fields = tagged(mapping(state, "runners").get(runner_id))
    return {
        "id": runner_id,
        "nodeId": node_id,
        "node": node_name(state, node_id),
        "status": status or None,
        "error": text(fields, "errorMessage"),
    }
