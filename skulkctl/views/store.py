"""The models of the shared store as rows. Pure."""

from __future__ import annotations

from skulkctl.layout import without_owner
from skulkctl.tables import Column, Resource, size
from skulkctl.views.read import Document, integer, number, sequence, text

STORE = Resource(
    kind="StoreList",
    name_path="modelId",
    empty_hint="bring a model:  skulkctl model pull ORG/NAME",
    columns=(
        Column("model", "modelId", "Id of the model.", short=without_owner),
        Column("size", "sizeBytes", "All its files.", size, right=True),
        Column("files", "fileCount", "How many files.", right=True, spare=1),
        Column("status", "status", "stored, or how far a fetch is.", status=True),
        Column("added", "addedAt", "When it came into the store.", wide=True),
        Column("directory", "directory", "Below the store's root.", wide=True),
    ),
)


def store_items(registry: object, downloads: object) -> list[dict[str, object]]:
    """Stored models by id, then those on their way."""
    stored = [_stored(entry) for entry in sequence(registry, "entries")]
    coming = [_coming(entry) for entry in sequence(downloads, "downloads")]
    return sorted(stored, key=_name) + sorted(coming, key=_name)


def _name(item: Document) -> str:
    return str(item["modelId"]).casefold()


def _stored(entry: object) -> dict[str, object]:
    return {
        "modelId": text(entry, "model_id"),
        "sizeBytes": integer(entry, "total_bytes"),
        "fileCount": len(sequence(entry, "files")),
        "status": "stored",
        "addedAt": text(entry, "downloaded_at"),
        "directory": text(entry, "store_path"),
    }


def _coming(entry: object) -> dict[str, object]:
    part = number(entry, "progress") or 0.0
    error = text(entry, "error")
    return {
        "modelId": text(entry, "modelId"),
        "sizeBytes": None,
        "fileCount": None,
        "status": f"{text(entry, 'status')} {100 * part:.0f}%" + (f": {error}" if error else ""),
        "addedAt": None,
        "directory": None,
    }
