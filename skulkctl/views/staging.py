"""Model files on their way to a node, from `/state.downloads`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from skulkctl.tables import size
from skulkctl.units import age_text
from skulkctl.views.nodes import node_name
from skulkctl.views.read import (
    Document,
    dig,
    integer,
    mapping,
    number,
    sequence,
    size_bytes,
    tagged,
    text,
)

_STATUS = {
    "DownloadPending": "pending",
    "DownloadOngoing": "ongoing",
    "DownloadCompleted": "completed",
    "DownloadFailed": "failed",
}


def staging_of(state: object, node_id: str, model_id: str | None) -> dict[str, object] | None:
    """How far a model is on its way to a node; None when nothing is known of it."""
    for tag, fields in _entries(state, node_id):
        if _model_of(fields) == model_id and tag in _STATUS:
            return _staging(tag, fields)
    return None


def transfers_to(state: object, node_id: str) -> list[dict[str, object]]:
    """Models on their way to a node: bytes, rate, time left, and all of it as a text."""
    found = []
    for tag, fields in _entries(state, node_id):
        if tag == "DownloadOngoing":
            staging = _staging(tag, fields)
            found.append({"modelId": _model_of(fields), **staging, "text": staging_text(staging)})
    return found


def nodes_with(state: object, model_id: str) -> list[str]:
    """Names of the nodes that have the whole model on disk."""
    return sorted(
        node_name(state, node_id)
        for node_id in mapping(state, "downloads")
        for tag, fields in _entries(state, node_id)
        if tag == "DownloadCompleted" and _model_of(fields) == model_id
    )


def staging_text(staging: Document) -> str | None:
    """`staging 1.2GiB/3.0GiB, 85.0MiB/s, 18s left`; None when the files are there."""
    status = staging["status"]
    if status == "failed":
        return f"staging failed: {staging['error'] or 'no reason given'}"
    if status == "pending":
        return "staging not begun"
    if status != "ongoing":
        return None
    done, total = integer(staging, "doneBytes"), integer(staging, "totalBytes")
    rate, left_s = number(staging, "bytesPerSecond"), number(staging, "secondsLeft")
    return f"staging {progress_text(done, total, rate, left_s)}".rstrip()


def progress_text(
    done_bytes: int | None,
    total_bytes: int | None,
    bytes_per_second: float | None,
    seconds_left: float | None,
) -> str:
    """`1.2GiB/3.0GiB, 85.0MiB/s, 18s left`, as far as it is known; the one place that says it."""
    if not done_bytes and not total_bytes:
        return ""
    parts = [f"{size(done_bytes or 0)}/{size(total_bytes)}" if total_bytes else size(done_bytes)]
    if bytes_per_second:
        parts.append(f"{size(int(bytes_per_second))}/s")
        if seconds_left and total_bytes:
            parts.append(f"{age_text(seconds_left)} left")
    return ", ".join(parts)


def _staging(tag: str, fields: Document) -> dict[str, object]:
    progress = mapping(fields, "downloadProgress") or fields
    total = size_bytes(progress, "total")
    done = total if tag == "DownloadCompleted" else size_bytes(progress, "downloaded")
    eta_ms = integer(progress, "etaMs")
    return {
        "status": _STATUS[tag],
        "doneBytes": done,
        "totalBytes": total,
        "bytesPerSecond": number(progress, "speed"),
        "secondsLeft": None if eta_ms is None else eta_ms / 1000,
        "error": text(fields, "errorMessage"),
    }


def _entries(state: object, node_id: str) -> Iterator[tuple[str, Document]]:
    return map(tagged, sequence(state, "downloads", node_id))


def _model_of(fields: Document) -> str | None:
    _, shard = tagged(dig(fields, "shardMetadata"))
    return text(shard, "modelCard", "modelId")
