"""The models of the shared store as rows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from skulkctl.output.layout import without_owner
from skulkctl.output.tables import Column, Resource, size

if TYPE_CHECKING:
    from skulkd.wire.storage import (
        StoreDownload,
        StoreDownloads,
        StoreRegistry,
        StoreRegistryEntry,
    )

STORE = Resource(
    kind="StoreList",
    name_path="modelId",
    empty_hint="download a model:  skulkctl model pull ORG/NAME",
    columns=(
        Column("model", "modelId", "Id of the model.", short=without_owner),
        Column("size", "sizeBytes", "Size of all its files.", size, right=True),
        Column("files", "fileCount", "Number of files.", right=True, spare=1),
        Column("status", "status", "stored, or the download progress.", status=True),
        Column("added", "addedAt", "When the model was added to the store.", wide=True),
        Column("directory", "directory", "Directory below the store's root.", wide=True),
    ),
)


class StoreItem(TypedDict):
    """One model of the store, or on its way there."""

    modelId: str
    sizeBytes: int | None
    fileCount: int | None
    status: str
    addedAt: str | None
    directory: str | None


def store_items(registry: StoreRegistry, downloads: StoreDownloads) -> list[StoreItem]:
    """Stored models by id, then those on their way."""
    stored = [_stored(entry) for entry in registry.entries]
    coming = [_coming(entry) for entry in downloads.downloads]
    return sorted(stored, key=_name) + sorted(coming, key=_name)


def _name(item: StoreItem) -> str:
    return item["modelId"].casefold()


def _stored(entry: StoreRegistryEntry) -> StoreItem:
    return {
        "modelId": entry.model_id,
        "sizeBytes": entry.total_bytes,
        "fileCount": len(entry.files),
        "status": "stored",
        "addedAt": entry.downloaded_at,
        "directory": entry.store_path,
    }


def _coming(entry: StoreDownload) -> StoreItem:
    error = f": {entry.error}" if entry.error else ""
    return {
        "modelId": entry.model_id,
        "sizeBytes": None,
        "fileCount": None,
        "status": f"{entry.status} {100 * entry.progress:.0f}%{error}",
        "addedAt": None,
        "directory": None,
    }
