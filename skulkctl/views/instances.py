"""Instances as rows: a placed model, its ranks, and how far each of them is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from skulkctl.errors import NotFound
from skulkctl.layout import unique_prefixes, without_owner
from skulkctl.names import Candidate, Note, find_one, model_aliases
from skulkctl.tables import EMPTY, Column, Resource, plain
from skulkctl.views.moves import move_text
from skulkctl.views.nodes import node_name
from skulkctl.views.read import Document, dig, integer, mapping, sequence, size_bytes, tagged, text
from skulkctl.views.staging import staging_of, staging_text

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


def short_instance(value: object) -> str:
    return plain(value)[:SHORT_ID]


def layers_text(runner: Document) -> str:
    """`0-8/16`: the half-open range that a rank holds, of all."""
    if runner["startLayer"] is None:
        return EMPTY
    return f"{runner['startLayer']}-{plain(runner['endLayer'])}/{plain(runner['modelLayers'])}"


def runner_text(runner: Document) -> str:
    """What one rank does: `loading 12/30`, `staging 1.2GiB/3.0GiB`, `warming up`."""
    status = text(runner, "status")
    if status == "RunnerFailed":
        reason = (text(runner, "error") or "no reason given").splitlines()[0]
        return f"failed: {reason}"
    staging = mapping(runner, "staging")
    if staging and status in (None, "RunnerIdle", "RunnerConnecting", "RunnerConnected"):
        told = staging_text(staging)
        if told:
            return told
    if status == "RunnerLoading" and runner["layersToLoad"]:
        return f"loading {plain(runner['layersLoaded'])}/{plain(runner['layersToLoad'])}"
    return "waiting for a runner" if status is None else _WORDS.get(status, status)


def _by_rank(cell: Callable[[Document], object]) -> Callable[[object], str]:
    """A cell with one entry for each rank."""

    def text_of(runners: object) -> str:
        found = runners if isinstance(runners, list) else []
        return plain([cell(runner) for runner in found])

    return text_of


def _moves_text(moves: object) -> str:
    return plain([move_text(move) for move in moves]) if isinstance(moves, list) else EMPTY


INSTANCES = Resource(
    kind="InstanceList",
    name_path="id",
    empty_hint="nothing is placed:  skulkctl place MODEL --wait",
    columns=(
        Column(
            "instance",
            "id",
            "Id; shortened on a terminal.",
            only_narrow=True,
            short=unique_prefixes(SHORT_ID),
            is_id=True,
        ),
        Column("model", "modelId", "Model that is placed.", short=without_owner),
        Column("ready", "ready", "Runners that are ready, of all."),
        Column("status", "status", "ready, starting, waiting or failed.", status=True),
        Column("detail", "detail", "What the rank that is farthest behind does, or why it failed."),
        Column("nodes", "nodes", "Nodes that hold a shard, by rank.", spare=1),
        Column("sharding", "sharding", "Pipeline (by layers) or Tensor.", spare=4),
        Column("context", "contextTokenLimit", "Longest context in tokens.", right=True, spare=5),
        Column("tasks", "tasks", "Requests that wait or run.", right=True, spare=3),
        Column("layers", "runners", "Layers of each rank.", _by_rank(layers_text), True),
        Column("runners", "runners", "Runner of each rank.", _by_rank(itemgetter("id")), True),
        Column("ranks", "runners", "What each rank does.", _by_rank(runner_text), True),
        Column("backend", "runners", "What computes.", _by_rank(itemgetter("backend")), True),
        Column("kind", "kind", "How the ranks are connected.", wide=True),
        Column("moves", "moves", "Where it was before, and why it moved.", _moves_text, True),
        Column("id", "id", "Id in full.", wide=True),
    ),
)


def instance_items(state: object) -> list[dict[str, object]]:
    """One item per instance, by model and id."""
    items = [
        instance_item(state, instance_id, instance)
        for instance_id, instance in mapping(state, "instances").items()
    ]
    return sorted(items, key=lambda item: (str(item["modelId"]), str(item["id"])))


def instance_item(state: object, instance_id: str, instance: object) -> dict[str, object]:
    """One tagged instance with what the state knows of its runners."""
    kind, body = tagged(instance)
    by_node = mapping(body, "shardAssignments", "nodeToRunner")
    runners = [_runner(state, body, node_id, str(runner)) for node_id, runner in by_node.items()]
    ready = sum(runner["status"] in READY for runner in runners)
    failed = any(runner["status"] == "RunnerFailed" for runner in runners)
    status = "failed" if failed else "ready" if runners and ready == len(runners) else "starting"
    return {
        "id": instance_id,
        "kind": kind or None,
        "modelId": text(body, "shardAssignments", "modelId"),
        "status": status,
        "ready": f"{ready}/{len(runners)}",
        "readyRunners": ready,
        "totalRunners": len(runners),
        "detail": None if status == "ready" else _detail(runners),
        "nodes": [runner["node"] for runner in runners],
        "sharding": _sharding(body),
        "contextTokenLimit": integer(body, "contextTokenLimit"),
        "storageBytes": _storage_bytes(body),
        "tasks": sum(_is_open(task, instance_id) for task in mapping(state, "tasks").values()),
        "runners": runners,
        "moves": [],
    }


def waiting_items(placements: object) -> list[dict[str, object]]:
    """Models that lost their place and wait for another, from `/v1/placements`."""
    return [
        {
            "id": text(row, "instanceId") or "",
            "kind": None,
            "modelId": text(row, "modelId"),
            "status": "waiting",
            "ready": f"0/{integer(row, 'ranks') or 0}",
            "readyRunners": 0,
            "totalRunners": integer(row, "ranks") or 0,
            "detail": "its node is gone and it fits nowhere else yet",
            "nodes": [],
            "sharding": text(row, "sharding"),
            "contextTokenLimit": None,
            "storageBytes": None,
            "tasks": 0,
            "runners": [],
            "moves": [],
        }
        for row in sequence(placements, "waiting")
    ]


def _runner(state: object, body: Document, node_id: str, runner_id: str) -> Document:
    # The runner map may lag behind the instance map; then the status is not known yet.
    status, fields = tagged(mapping(state, "runners").get(runner_id))
    _, shard = tagged(dig(body, "shardAssignments", "runnerToShard", runner_id))
    model_id = text(body, "shardAssignments", "modelId")
    return {
        "id": runner_id,
        "nodeId": node_id,
        "node": node_name(state, node_id),
        "rank": integer(shard, "deviceRank"),
        "status": status or None,
        "error": text(fields, "errorMessage"),
        "layersLoaded": integer(fields, "layersLoaded"),
        "layersToLoad": integer(fields, "totalLayers"),
        "startLayer": integer(shard, "startLayer"),
        "endLayer": integer(shard, "endLayer"),
        "modelLayers": integer(shard, "nLayers"),
        "backend": text(shard, "resolvedBackend"),
        "staging": staging_of(state, node_id, model_id),
    }


def _detail(runners: Sequence[Document]) -> str | None:
    """What the rank does that all the others wait for; a failure goes first."""
    failed = [runner for runner in runners if runner["status"] == "RunnerFailed"]
    behind = min(failed or runners, key=_progress, default=None)
    return None if behind is None else runner_text(behind)


def _progress(runner: Document) -> tuple[int, bool]:
    """Of ranks that are equally far, one whose files are on their way comes first."""
    status = text(runner, "status")
    here = text(runner, "staging", "status") in (None, "completed")
    return _ORDER.index(status) if status in _ORDER else -1, here


def _sharding(body: Document) -> str | None:
    shards = mapping(body, "shardAssignments", "runnerToShard").values()
    tags = [tag.removesuffix("ShardMetadata") for tag, _ in map(tagged, shards)]
    return tags[0] if tags and tags[0] else None


def _storage_bytes(body: Document) -> int | None:
    for shard in mapping(body, "shardAssignments", "runnerToShard").values():
        return size_bytes(tagged(shard)[1], "modelCard", "storageSize")
    return None


def _is_open(task: object, instance_id: str) -> bool:
    """A request of a client; loading and warming up are not counted."""
    _, fields = tagged(task)
    return (
        "commandId" in fields
        and text(fields, "instanceId") == instance_id
        and text(fields, "taskStatus") in OPEN
    )


def find_instance(items: Sequence[Document], typed: str, note: Note | None = None) -> Document:
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


def instance_candidates(items: Iterable[Document]) -> list[Candidate[Document]]:
    """Instances go by their ids, and by the names of their models."""
    return [
        Candidate(
            item,
            (str(item["id"]),),
            model_aliases(str(item["modelId"])),
            f"{item['id']}  {item['modelId']}",
        )
        for item in items
    ]


def models_of(items: Iterable[Document]) -> list[str]:
    """The models that are placed, each once."""
    return list(dict.fromkeys(str(item["modelId"]) for item in items if item["modelId"]))


def failures(item: Document) -> list[Document]:
    """The ranks that will not become ready by themselves, with the reason under `error`."""
    found: list[Document] = []
    for runner in sequence(item, "runners"):
        if not isinstance(runner, Mapping):
            continue
        staging = mapping(runner, "staging")
        if runner["status"] == "RunnerFailed":
            found.append({**runner, "error": runner["error"] or "no reason given"})
        elif text(staging, "status") == "failed" and runner["status"] is None:
            found.append({**runner, "error": f"staging failed: {plain(staging['error'])}"})
    return found
