"""Storage of the nodes as rows: from `/store/storage/cluster` to items. Pure; `now` is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from skulkctl.layout import without_owner
from skulkctl.tables import Column, Resource, age, size
from skulkctl.units import time_text
from skulkctl.views.nodes import NO_ANSWER
from skulkctl.views.read import Document, flag, integer, mapping, number, sequence, text
from skulkctl.views.staging import transfers_to

TOTAL = "TOTAL"

STORAGE = Resource(
    kind="StorageList",
    name_path="name",
    columns=(
        Column("node", "name", "Name of the node."),
        Column("status", "status", "ok, or NO ANSWER when the node is silent.", status=True),
        Column("models", "modelCount", "Staged models.", right=True, spare=3),
        Column("staged", "stagedBytes", "All staged copies.", size, right=True),
        Column("in-use", "inUseBytes", "Copies that must stay.", size, right=True, spare=1),
        Column(
            "keep",
            "keepRecentBytes",
            "What eviction leaves; - when off.",
            size,
            right=True,
            spare=6,
        ),
        Column(
            "evict", "nextEvictionBytes", "What the next one would free.", size, right=True, spare=2
        ),
        Column("events", "eventLogBytes", "The event log.", size, right=True, spare=8),
        Column("logs", "logBytes", "Log files, daemon and runners.", size, right=True, spare=7),
        Column("free", "diskFreeBytes", "Free disk of the staging volume.", size, right=True),
        Column("disk", "diskTotalBytes", "Size of that volume.", size, right=True, spare=5),
        Column("root", "stagingRoot", "The staging directory.", wide=True),
        Column("store", "storePath", "The store, on its host.", wide=True),
        Column("id", "id", "Id of this session.", wide=True),
    ),
)

COPIES = Resource(
    kind="StagedModelList",
    name_path="modelId",
    columns=(
        Column("node", "node", "Name of the node."),
        Column("model", "modelId", "Id of the model.", short=without_owner),
        Column("size", "sizeBytes", "Bytes on disk.", size, right=True),
        Column("unused", "unusedSeconds", "Time since the last use.", age, right=True, spare=2),
        Column("state", "state", "staged, half, in use, evict next, or how far it is."),
        Column("why", "inUseBy", "What uses it.", spare=1),
        Column("last-used", "lastUsed", "Time of the last use.", wide=True),
        Column("directory", "directory", "Where it is.", wide=True),
    ),
)


def storage_items(answer: object, now: datetime, state: object = None) -> list[dict[str, object]]:
    """One item for each node of `/store/storage/cluster`, in its order."""
    return [_node(entry, now, state) for entry in sequence(answer, "nodes")]


def local_item(summary: object, name: str) -> dict[str, object]:
    """What `/store/storage` says, wrapped as the only node; for servers without our endpoint."""
    node_id = text(summary, "nodeId")
    return {"nodes": [{"nodeId": node_id, "name": name, "ok": True, "storage": summary}]}


def _node(entry: object, now: datetime, state: object) -> dict[str, object]:
    storage = mapping(entry, "storage")
    name = text(entry, "name") or text(entry, "nodeId") or "?"
    node_id = text(entry, "nodeId") or ""
    evicted = {str(model) for model in sequence(storage, "nextEviction")}
    moving = {str(one["modelId"]): one for one in transfers_to(state, node_id)}
    copies = [
        _copy(model, name, node_id, now, evicted, moving)
        for model in sequence(storage, "stagedModels")
    ]
    known = {str(copy["modelId"]) for copy in copies}
    copies += [_arriving(one, name, node_id) for m, one in moving.items() if m not in known]
    answered = flag(entry, "ok") is True
    return {
        "name": name,
        "id": node_id,
        "status": "ok" if answered else NO_ANSWER,
        "error": None if answered else text(entry, "error") or "no reason given",
        "modelCount": len(sequence(storage, "stagedModels")) if answered else None,
        "stagedBytes": integer(storage, "stagedTotalBytes"),
        "inUseBytes": sum(_bytes(copy) for copy in copies if copy["inUse"]) if answered else None,
        "keepRecentBytes": integer(storage, "keepRecentBytes"),
        "nextEviction": sorted(evicted),
        "nextEvictionBytes": integer(storage, "nextEvictionBytes"),
        "eventLogBytes": integer(storage, "eventLogBytes"),
        "logBytes": integer(storage, "logBytes"),
        "diskFreeBytes": integer(storage, "diskFreeBytes"),
        "diskTotalBytes": integer(storage, "diskTotalBytes"),
        "stagingRoot": text(storage, "stagingRoot"),
        "storePath": text(storage, "storePath"),
        "models": copies,
    }


def _copy(
    model: object,
    name: str,
    node_id: str,
    now: datetime,
    evicted: set[str],
    moving: Mapping[str, Document],
) -> dict[str, object]:
    model_id = text(model, "modelId") or "?"
    used_at = number(model, "lastUsedEpochSeconds")
    in_use = flag(model, "inUse") is True
    return {
        "id": f"{node_id} {model_id}",
        "node": name,
        "modelId": model_id,
        "directory": text(model, "directory"),
        "sizeBytes": integer(model, "sizeBytes"),
        "lastUsed": time_text(datetime.fromtimestamp(used_at, UTC)) if used_at else None,
        "unusedSeconds": _since(used_at, now),
        "inUse": in_use,
        "inUseBy": [str(reason) for reason in sequence(model, "inUseBy")],
        "complete": flag(model, "complete") is not False,
        "evictNext": model_id in evicted,
        "state": _state(model, moving.get(model_id), in_use, model_id in evicted),
    }


def _since(used_at: float | None, now: datetime) -> float | None:
    return None if not used_at else max(0.0, round(now.timestamp() - used_at, 1))


def _state(model: object, transfer: Document | None, in_use: bool, evicted: bool) -> str:
    if transfer is not None:
        return str(transfer["text"])
    if in_use:
        return "in use"
    if flag(model, "complete") is False:
        return "half"
    return "evict next" if evicted else "staged"


def _arriving(transfer: Document, name: str, node_id: str) -> dict[str, object]:
    """A model of which nothing is on disk yet."""
    return {
        "id": f"{node_id} {transfer['modelId']}",
        "node": name,
        "modelId": transfer["modelId"],
        "sizeBytes": transfer["doneBytes"],
        "inUse": True,
        "inUseBy": ["being staged"],
        "complete": False,
        "evictNext": False,
        "state": transfer["text"],
    }


def copies_of(items: Sequence[Document]) -> list[Document]:
    """The copies of all nodes as rows."""
    return [
        copy for item in items for copy in sequence(item, "models") if isinstance(copy, Mapping)
    ]


def total_of(items: Sequence[Document]) -> dict[str, object]:
    """A row that adds up the others."""

    def add(key: str) -> int:
        return sum(integer(item, key) or 0 for item in items)

    keys = (
        "modelCount",
        "stagedBytes",
        "inUseBytes",
        "nextEvictionBytes",
        "eventLogBytes",
        "logBytes",
    )
    return {"name": TOTAL, **{key: add(key) for key in (*keys, "diskFreeBytes", "diskTotalBytes")}}


def _bytes(copy: Document) -> int:
    return integer(copy, "sizeBytes") or 0
