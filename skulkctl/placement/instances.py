"""Instances as rows: a placed model, its ranks, and how far each of them is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from skulkctl.errors import NotFound
from skulkctl.names import Candidate, Note, find_one, model_aliases
from skulkctl.output.layout import unique_prefixes, without_owner
from skulkctl.output.tables import EMPTY, Column, Resource, plain
from skulkctl.output.units import age_text
from skulkctl.placement.downloads import COMPLETED, FAILED, DownloadItem, download_of, download_text

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.ids import NodeId, RunnerId
    from skulkd.wire.instances import Instance
    from skulkd.wire.placement_record import PlacementsAnswer
    from skulkd.wire.runners import RunnerStatus
    from skulkd.wire.shards import ShardAssignments
    from skulkd.wire.tasks import Task

READY = ("RunnerReady", "RunnerRunning")
OPEN = ("Pending", "Running")
SHORT_ID = 8

# How far a runner is; what is not here has not started yet.
_ORDER = (
    "RunnerIdle",
    "RunnerConnecting",
    "RunnerConnected",
    "RunnerLoading",
    "RunnerLoaded",
    "RunnerWarmingUp",
    *READY,
)
_BEFORE_LOADING = ("RunnerIdle", "RunnerConnecting", "RunnerConnected")
_WORDS = {
    "RunnerIdle": "started",
    "RunnerConnecting": "connecting",
    "RunnerConnected": "connected",
    "RunnerLoading": "loading",
    "RunnerLoaded": "loaded",
    "RunnerWarmingUp": "warming up",
    "RunnerReady": "ready",
    "RunnerRunning": "running",
    "RunnerShuttingDown": "stopping",
    "RunnerFailed": "failed",
}


class RunnerItem(TypedDict):
    """One rank of a placed model."""

    id: str
    nodeId: str
    node: str
    rank: int
    status: str | None
    error: str | None
    layersLoaded: int | None
    layersToLoad: int | None
    startLayer: int
    endLayer: int
    modelLayers: int
    backend: str | None
    staging: DownloadItem | None


class UnloadItem(TypedDict):
    """When a model that was placed on demand is unloaded."""

    at: str | None
    inUse: bool
    keepAliveSeconds: float | None


class InstanceItem(TypedDict):
    """One placed model as `skulkctl instances -o json` prints it."""

    id: str
    kind: str | None
    modelId: str
    status: str
    ready: str
    readyRunners: int
    totalRunners: int
    detail: str | None
    nodes: list[str]
    sharding: str | None
    contextTokenLimit: int | None
    storageBytes: int | None
    tasks: int
    runners: list[RunnerItem]
    moves: list[dict[str, Any]]
    notMoved: NotRequired[str | None]
    excluded: NotRequired[list[str]]
    only: NotRequired[list[str]]
    unloads: NotRequired[UnloadItem | None]


def short_instance(value: object) -> str:
    return plain(value)[:SHORT_ID]


def layers_text(runner: RunnerItem) -> str:
    """`0-8/16`: the half-open range that a rank holds, of all."""
    return f"{runner['startLayer']}-{runner['endLayer']}/{runner['modelLayers']}"


def runner_text(runner: RunnerItem) -> str:
    """What one rank does: `loading 12/30`, `staging 1.2GiB/3.0GiB`, `warming up`."""
    status = runner["status"]
    if status == "RunnerFailed":
        return f"failed: {(runner['error'] or 'no reason given').splitlines()[0]}"
    if runner["staging"] and status in (None, *_BEFORE_LOADING):
        progress = download_text(runner["staging"])
        if progress:
            return progress
    if status == "RunnerLoading" and runner["layersToLoad"]:
        return f"loading {plain(runner['layersLoaded'])}/{runner['layersToLoad']}"
    return "waiting for a runner" if status is None else _WORDS.get(status, status)


def _by_rank(cell: Callable[[RunnerItem], object]) -> Callable[[object], str]:
    """A cell with one entry for each rank."""

    def text_of(runners: object) -> str:
        found = runners if isinstance(runners, list) else []
        return plain([cell(runner) for runner in found])

    return text_of


def _moves_text(moves: object) -> str:
    from skulkctl.placement.moves import move_text
    from skulkd.wire.placement_record import Move

    if not isinstance(moves, list) or not moves:
        return EMPTY
    return plain([move_text(Move.model_validate(move)) for move in moves])


def unloads_text(unloads: object) -> str:
    """`in 4m`, `in use`, `when memory is short`; empty for what an operator placed."""
    if not isinstance(unloads, dict):
        return EMPTY
    if unloads["keepAliveSeconds"] is None:
        return "when memory is short"
    if unloads["at"] is None:
        return "in use"
    left = datetime.fromisoformat(unloads["at"]) - datetime.now(UTC)
    return f"in {age_text(max(0.0, left.total_seconds()))}"


INSTANCES = Resource(
    kind="InstanceList",
    name_path="id",
    empty_hint="nothing is placed:  skulkctl place MODEL --wait",
    columns=(
        Column(
            "instance",
            "id",
            "Id of the instance; shortened on a terminal.",
            only_narrow=True,
            short=unique_prefixes(SHORT_ID),
            is_id=True,
        ),
        Column("model", "modelId", "Id of the placed model.", short=without_owner),
        Column("ready", "ready", "Ready runners / all runners."),
        Column("status", "status", "ready, starting, waiting or failed.", status=True),
        Column("detail", "detail", "Activity of the slowest rank, or why it failed."),
        Column("nodes", "nodes", "Nodes that hold a shard, by rank.", spare=1),
        Column("sharding", "sharding", "Pipeline (by layers) or Tensor.", spare=4),
        Column(
            "context", "contextTokenLimit", "Maximum context length in tokens.", right=True, spare=5
        ),
        Column("tasks", "tasks", "Queued and active requests.", right=True, spare=3),
        Column(
            "unloads",
            "unloads",
            "When it is unloaded; empty for what an operator placed.",
            unloads_text,
            spare=2,
        ),
        Column("layers", "runners", "Layers of each rank.", _by_rank(layers_text), True),
        Column("runners", "runners", "Runner of each rank.", _by_rank(itemgetter("id")), True),
        Column("ranks", "runners", "Status of each rank.", _by_rank(runner_text), True),
        Column(
            "backend",
            "runners",
            "Compute backend of each rank.",
            _by_rank(itemgetter("backend")),
            True,
        ),
        Column("kind", "kind", "How the ranks are connected.", wide=True),
        Column("moves", "moves", "Earlier placements, and why it was moved.", _moves_text, True),
        Column("id", "id", "Full id of the instance.", wide=True),
    ),
)


def instance_items(state: ClusterState) -> list[InstanceItem]:
    """One item per instance, by model and id."""
    items = [
        instance_item(state, instance_id, instance)
        for instance_id, instance in state.instances.items()
    ]
    return sorted(items, key=lambda item: (item["modelId"], item["id"]))


def instance_item(state: ClusterState, instance_id: str, instance: Instance) -> InstanceItem:
    """One instance with what the state knows of its runners."""
    shards = instance.shard_assignments
    runners = [_runner(state, shards, *pair) for pair in shards.node_to_runner.items()]
    ready = sum(runner["status"] in READY for runner in runners)
    failed = any(runner["status"] == "RunnerFailed" for runner in runners)
    status = "failed" if failed else "ready" if runners and ready == len(runners) else "starting"
    first = next(iter(shards.runner_to_shard.values()), None)
    return {
        "id": instance_id,
        "kind": type(instance).__name__,
        "modelId": shards.model_id,
        "status": status,
        "ready": f"{ready}/{len(runners)}",
        "readyRunners": ready,
        "totalRunners": len(runners),
        "detail": None if status == "ready" else _detail(runners),
        "nodes": [runner["node"] for runner in runners],
        "sharding": type(first).__name__.removesuffix("ShardMetadata") if first else None,
        "contextTokenLimit": instance.context_token_limit,
        "storageBytes": first.model_card.storage_size.in_bytes if first else None,
        "tasks": sum(_is_open(task, instance_id) for task in state.tasks.values()),
        "runners": runners,
        "moves": [],
    }


def waiting_items(placements: PlacementsAnswer) -> list[InstanceItem]:
    """Models that lost their place and wait for another."""
    return [
        {
            "id": row.instance_id,
            "kind": None,
            "modelId": row.model_id,
            "status": "waiting",
            "ready": f"0/{row.ranks}",
            "readyRunners": 0,
            "totalRunners": row.ranks,
            "detail": "its node is gone and it fits on no other node yet",
            "nodes": [],
            "sharding": row.sharding,
            "contextTokenLimit": None,
            "storageBytes": None,
            "tasks": 0,
            "runners": [],
            "moves": [],
        }
        for row in placements.waiting
    ]


def _runner(
    state: ClusterState, shards: ShardAssignments, node_id: NodeId, runner_id: RunnerId
) -> RunnerItem:
    # The runner map may lag behind the instance map; then the status is not known yet.
    status = state.runners.get(runner_id)
    loaded, to_load, error = _facts(status)
    shard = shards.runner_to_shard[runner_id]
    return {
        "id": runner_id,
        "nodeId": node_id,
        "node": state.node_name(node_id),
        "rank": shard.device_rank,
        "status": None if status is None else type(status).__name__,
        "error": error,
        "layersLoaded": loaded,
        "layersToLoad": to_load,
        "startLayer": shard.start_layer,
        "endLayer": shard.end_layer,
        "modelLayers": shard.n_layers,
        "backend": shard.resolved_backend,
        "staging": download_of(state, node_id, shards.model_id),
    }


def _facts(status: RunnerStatus | None) -> tuple[int | None, int | None, str | None]:
    """Layers loaded, of how many, and why it failed; as far as its status has them."""
    from skulkd.wire.runners import RunnerFailed, RunnerLoading

    if isinstance(status, RunnerLoading):
        return status.layers_loaded, status.total_layers, None
    return None, None, status.error_message if isinstance(status, RunnerFailed) else None


def _detail(runners: Sequence[RunnerItem]) -> str | None:
    """What the rank does that all the others wait for; a failure goes first."""
    failed = [runner for runner in runners if runner["status"] == "RunnerFailed"]
    behind = min(failed or runners, key=_progress, default=None)
    return None if behind is None else runner_text(behind)


def _progress(runner: RunnerItem) -> tuple[int, bool]:
    """Of ranks that are equally far, one whose files are on their way comes first."""
    status, staging = runner["status"], runner["staging"]
    here = staging is None or staging["status"] == COMPLETED
    return _ORDER.index(status) if status in _ORDER else -1, here


def _is_open(task: Task, instance_id: str) -> bool:
    """A request of a client; loading and warming up are not counted."""
    from skulkd.wire.tasks import BaseRequestTask

    is_request = isinstance(task, BaseRequestTask) and task.task_status in OPEN
    return is_request and task.instance_id == instance_id


def find_instance(
    items: Sequence[InstanceItem], typed: str, note: Note | None = None
) -> InstanceItem:
    """The instance with that id, or the only one of that model; `note`: see `names.find_one`.

    Raises NotFound, or UsageMistake with the candidates when several match.
    """
    found = find_one("instance", instance_candidates(items), typed, note)
    if found is None:
        known = [f"{short_instance(item['id'])}  {item['modelId']}" for item in items]
        raise NotFound(
            f"no instance {typed}", *(known or ["nothing is placed"]), hints=["skulkctl instances"]
        )
    return found


def instance_candidates(items: Iterable[InstanceItem]) -> list[Candidate[InstanceItem]]:
    """Instances go by their ids, and by the names of their models."""
    return [
        Candidate(
            item,
            (item["id"],),
            model_aliases(item["modelId"]),
            f"{item['id']}  {item['modelId']}",
        )
        for item in items
    ]


def models_of(items: Iterable[InstanceItem]) -> list[str]:
    """The models that are placed, each once."""
    return list(dict.fromkeys(item["modelId"] for item in items))


def failures(item: InstanceItem) -> list[RunnerItem]:
    """The ranks that will not become ready by themselves, with the reason under `error`."""
    found: list[RunnerItem] = []
    for runner in item["runners"]:
        staging = runner["staging"]
        if runner["status"] == "RunnerFailed":
            found.append({**runner, "error": runner["error"] or "no reason given"})
        elif runner["status"] is None and staging and staging["status"] == FAILED:
            found.append({**runner, "error": f"staging failed: {plain(staging['error'])}"})
    return found
