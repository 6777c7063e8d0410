"""Model files on their way to a node, from the downloads of the state. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from skulkctl.output.tables import size
from skulkctl.output.units import age_text
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.downloads import DownloadProgress

PENDING, ONGOING, COMPLETED, FAILED = "pending", "ongoing", "completed", "failed"


class DownloadItem(TypedDict):
    """How far the files of a model are on their way to one node."""

    status: str
    doneBytes: int | None
    totalBytes: int | None
    bytesPerSecond: float | None
    secondsLeft: float | None
    error: str | None


def download_of(state: ClusterState, node_id: str, model_id: str | None) -> DownloadItem | None:
    """How far a model is on its way to a node; None when nothing is known of it."""
    for download in state.downloads.get(NodeId(node_id), ()):
        if _model_of(download) == model_id:
            return _item(download)
    return None


def downloads_to(state: ClusterState, node_id: str) -> dict[str, DownloadItem]:
    """By model: what is on its way to a node right now."""
    items = {
        _model_of(download): _item(download)
        for download in state.downloads.get(NodeId(node_id), ())
    }
    return {model_id: item for model_id, item in items.items() if item["status"] == ONGOING}


def nodes_with(state: ClusterState, model_id: str) -> list[str]:
    """Names of the nodes that have the whole model on disk."""
    return sorted(
        state.node_name(node_id)
        for node_id, downloads in state.downloads.items()
        for download in downloads
        if _model_of(download) == model_id and _item(download)["status"] == COMPLETED
    )


def download_text(item: DownloadItem) -> str | None:
    """`staging 1.2GiB/3.0GiB, 85.0MiB/s, 18s left`; None when the files are there."""
    if item["status"] == FAILED:
        return f"staging failed: {item['error'] or 'no reason given'}"
    if item["status"] == PENDING:
        return "staging not started"
    if item["status"] == COMPLETED:
        return None
    progress = progress_text(
        item["doneBytes"], item["totalBytes"], item["bytesPerSecond"], item["secondsLeft"]
    )
    return f"staging {progress}".rstrip()


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


def _item(download: DownloadProgress) -> DownloadItem:
    from skulkd.wire import downloads

    item: DownloadItem = {
        "status": PENDING,
        "doneBytes": None,
        "totalBytes": None,
        "bytesPerSecond": None,
        "secondsLeft": None,
        "error": None,
    }
    match download:
        case downloads.DownloadPending(downloaded=done, total=total):
            return {**item, "doneBytes": done.in_bytes, "totalBytes": total.in_bytes}
        case downloads.DownloadOngoing(download_progress=progress):
            return {
                "status": ONGOING,
                "doneBytes": progress.downloaded.in_bytes,
                "totalBytes": progress.total.in_bytes,
                "bytesPerSecond": progress.speed,
                "secondsLeft": progress.eta_ms / 1000,
                "error": None,
            }
        case downloads.DownloadCompleted(total=total):
            whole = total.in_bytes
            return {**item, "status": COMPLETED, "doneBytes": whole, "totalBytes": whole}
        case downloads.DownloadFailed(error_message=message):
            return {**item, "status": FAILED, "error": message}


def _model_of(download: DownloadProgress) -> str:
    return download.shard_metadata.model_card.model_id
