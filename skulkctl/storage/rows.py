"""Storage of the nodes as rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, get_args

from skulkctl.nodes.rows import NO_ANSWER
from skulkctl.output.layout import without_owner
from skulkctl.output.tables import Column, Resource, age, share, size
from skulkctl.output.units import time_text
from skulkctl.placement.downloads import DownloadItem, download_text, downloads_to

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.storage import ClusterStorage, NodeStorage, NodeStorageAnswer, StagedCopy

_Summed = Literal[
    "modelCount",
    "stagedBytes",
    "inUseBytes",
    "nextEvictionBytes",
    "eventLogBytes",
    "logBytes",
    "diskFreeBytes",
    "diskTotalBytes",
]

TOTAL = "TOTAL"

STORAGE = Resource(
    kind="StorageList",
    name_path="name",
    columns=(
        Column("node", "name", "Name of the node."),
        Column("status", "status", "ok, or NO ANSWER if the node does not respond.", status=True),
        Column("models", "modelCount", "Number of staged models.", right=True, spare=3),
        Column("staged", "stagedBytes", "Size of all staged copies.", size, right=True),
        Column("in-use", "inUseBytes", "Size of the copies in use.", size, right=True, spare=1),
        Column(
            "keep",
            "keepRecentBytes",
            "Space that eviction leaves to recently used copies; - if eviction is off.",
            size,
            right=True,
            spare=6,
        ),
        Column(
            "evict",
            "nextEvictionBytes",
            "Space that the next eviction would free.",
            size,
            right=True,
            spare=2,
        ),
        Column("events", "eventLogBytes", "Size of the event log.", size, right=True, spare=8),
        Column(
            "logs",
            "logBytes",
            "Size of the log files of daemon and runners.",
            size,
            right=True,
            spare=7,
        ),
        Column("free", "diskFreeBytes", "Free disk space on the staging volume.", size, right=True),
        Column(
            "disk",
            "diskTotalBytes",
            "Size of the staging volume.",
            size,
            right=True,
            spare=5,
            ratio=share("diskFreeBytes", "diskTotalBytes", free=True),
        ),
        Column("root", "stagingRoot", "Path of the staging directory.", wide=True),
        Column("store", "storePath", "Path of the store, on the store host.", wide=True),
        Column("id", "id", "Id of the daemon's current session.", wide=True),
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
        Column(
            "state",
            "state",
            "staged, half, in use, evict next, or the download progress.",
            status=True,
        ),
        Column("why", "inUseBy", "What uses the copy.", spare=1),
        Column("last-used", "lastUsed", "Time of the last use.", wide=True),
        Column("directory", "directory", "Path of the copy.", wide=True),
    ),
)


class CopyItem(TypedDict):
    """One model on the disk of one node, whole or on its way."""

    id: str
    node: str
    modelId: str
    directory: NotRequired[str]
    sizeBytes: int | None
    lastUsed: NotRequired[str | None]
    unusedSeconds: NotRequired[float | None]
    inUse: bool
    inUseBy: list[str]
    complete: bool
    evictNext: bool
    state: str | None


class StorageItem(TypedDict):
    """One node as `skulkctl storage -o json` prints it."""

    name: str
    id: str
    status: str
    error: str | None
    modelCount: int | None
    stagedBytes: int | None
    inUseBytes: int | None
    keepRecentBytes: int | None
    nextEviction: list[str]
    nextEvictionBytes: int | None
    eventLogBytes: int | None
    logBytes: int | None
    diskFreeBytes: int | None
    diskTotalBytes: int | None
    stagingRoot: str | None
    storePath: str | None
    models: list[CopyItem]


def storage_items(storage: ClusterStorage, state: ClusterState) -> list[StorageItem]:
    """One item for each node, in the order of the answer."""
    return [_node(node, state) for node in storage.nodes]


def _node(node: NodeStorageAnswer, state: ClusterState) -> StorageItem:
    storage = node.storage if node.ok else None
    if storage is None:
        return _silent(node)
    copies = _copies(node, storage, state)
    return {
        "name": node.name or node.node_id,
        "id": node.node_id,
        "status": "ok",
        "error": None,
        "modelCount": len(storage.staged_models),
        "stagedBytes": storage.staged_total_bytes,
        "inUseBytes": sum(copy["sizeBytes"] or 0 for copy in copies if copy["inUse"]),
        "keepRecentBytes": storage.keep_recent_bytes,
        "nextEviction": sorted(storage.next_eviction),
        "nextEvictionBytes": _reported(storage, "next_eviction_bytes"),
        "eventLogBytes": storage.event_log_bytes,
        "logBytes": _reported(storage, "log_bytes"),
        "diskFreeBytes": storage.disk_free_bytes,
        "diskTotalBytes": storage.disk_total_bytes,
        "stagingRoot": storage.staging_root,
        "storePath": storage.store_path,
        "models": copies,
    }


def _reported(
    storage: NodeStorage, field: Literal["next_eviction_bytes", "log_bytes"]
) -> int | None:
    """None when the server does not tell it, which is not 0."""
    value: int = getattr(storage, field)
    return value if field in storage.model_fields_set else None


def _silent(node: NodeStorageAnswer) -> StorageItem:
    return {
        "name": node.name or node.node_id,
        "id": node.node_id,
        "status": NO_ANSWER,
        "error": node.error or "no reason given",
        "modelCount": None,
        "stagedBytes": None,
        "inUseBytes": None,
        "keepRecentBytes": None,
        "nextEviction": [],
        "nextEvictionBytes": None,
        "eventLogBytes": None,
        "logBytes": None,
        "diskFreeBytes": None,
        "diskTotalBytes": None,
        "stagingRoot": None,
        "storePath": None,
        "models": [],
    }


def _copies(node: NodeStorageAnswer, storage: NodeStorage, state: ClusterState) -> list[CopyItem]:
    """What is on the disk, then what is on its way and not there yet."""
    moving = downloads_to(state, node.node_id)
    copies = [
        _copy(node, model, state.now, model.model_id in storage.next_eviction, moving)
        for model in storage.staged_models
    ]
    there = {copy["modelId"] for copy in copies}
    arriving = [_arriving(node, *pair) for pair in moving.items() if pair[0] not in there]
    return copies + arriving


def _copy(
    node: NodeStorageAnswer,
    model: StagedCopy,
    now: datetime,
    evicted: bool,
    moving: Mapping[str, DownloadItem],
) -> CopyItem:
    used_at = model.last_used_epoch_seconds
    return {
        "id": f"{node.node_id} {model.model_id}",
        "node": node.name or node.node_id,
        "modelId": model.model_id,
        "directory": model.directory,
        "sizeBytes": model.size_bytes,
        "lastUsed": time_text(datetime.fromtimestamp(used_at, UTC)) if used_at else None,
        "unusedSeconds": max(0.0, round(now.timestamp() - used_at, 1)) if used_at else None,
        "inUse": model.in_use,
        "inUseBy": list(model.in_use_by),
        "complete": model.complete,
        "evictNext": evicted,
        "state": _state(model, moving.get(model.model_id), evicted),
    }


def _state(model: StagedCopy, download: DownloadItem | None, evicted: bool) -> str | None:
    if download is not None:
        return download_text(download)
    if model.in_use:
        return "in use"
    if not model.complete:
        return "half"
    return "evict next" if evicted else "staged"


def _arriving(node: NodeStorageAnswer, model_id: str, download: DownloadItem) -> CopyItem:
    """A model of which nothing is on disk yet."""
    return {
        "id": f"{node.node_id} {model_id}",
        "node": node.name or node.node_id,
        "modelId": model_id,
        "sizeBytes": download["doneBytes"],
        "inUse": True,
        "inUseBy": ["being staged"],
        "complete": False,
        "evictNext": False,
        "state": download_text(download),
    }


def copies_of(items: Sequence[StorageItem]) -> list[CopyItem]:
    """The copies of all nodes as rows."""
    return [copy for item in items for copy in item["models"]]


def total_of(items: Sequence[StorageItem]) -> dict[str, object]:
    """A row that adds up the others."""
    keys: tuple[_Summed, ...] = get_args(_Summed)
    sums: dict[str, int] = {key: sum(item[key] or 0 for item in items) for key in keys}
    return {"name": TOTAL, **sums}
