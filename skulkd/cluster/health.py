"""Health of a node, derived when somebody asks. Pure: values in, verdict out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import get_args

from skulkd.cluster.telemetry import NodeProblem
from skulkd.wire.downloads import DownloadFailed, DownloadProgress
from skulkd.wire.health import (
    EVENT_LOG_DEGRADED,
    HealthCode,
    HealthLevel,
    HealthReason,
    NodeHealth,
)
from skulkd.wire.machine import DiskUsage

GIB = 1024**3
DISK_FULL_BYTES = 2 * GIB
DISK_LOW_BYTES = 10 * GIB
UNREACHABLE_S = 15.0
_NO_SPACE = ("MiB are free", "No space left", "Disk quota exceeded")


def node_health(
    downloads: Iterable[DownloadProgress],
    disk: DiskUsage | None,
    silence_s: float,
    warnings: Iterable[str] = (),
    problems: Iterable[NodeProblem] = (),
    *,
    looping_bridge: str | None = None,
) -> NodeHealth:
    """Reasons in a fixed order: downloads, disk, event log, problems, bridge loop, silence.

    `looping_bridge` is the name of a bridge that is part of a loop of cables.

    What was not read is none.
    """
    judged: list[tuple[HealthLevel, HealthReason]] = [
        ("error", _failed_download(entry))
        for entry in downloads
        if isinstance(entry, DownloadFailed)
    ]
    if disk is not None:
        judged += _disk_reasons(disk)
    judged += [
        ("warn", _degraded(text)) for text in warnings if text.startswith(EVENT_LOG_DEGRADED)
    ]
    judged += [("error", reason) for one in problems if (reason := _problem(one)) is not None]
    if looping_bridge is not None:
        judged.append(("warn", _bridge_loop(looping_bridge)))
    if silence_s > UNREACHABLE_S:
        judged.append(("warn", _silent(silence_s)))
    levels = {level for level, _ in judged}
    worst: HealthLevel = "error" if "error" in levels else "warn" if "warn" in levels else "ok"
    return NodeHealth(level=worst, reasons=[reason for _, reason in judged])


def silence_seconds(last_seen: datetime, now: datetime) -> float:
    """How long a node has said nothing; a clock that runs ahead counts as no silence."""
    return max(0.0, (now - last_seen).total_seconds())


def _failed_download(entry: DownloadFailed) -> HealthReason:
    model_id = entry.shard_metadata.model_card.model_id
    return HealthReason(
        code="download_failed",
        message=f"download of {model_id} failed: {entry.error_message}",
        remediation="Check the network and free space on this node, then start the download again.",
    )


def _disk_reasons(disk: DiskUsage) -> list[tuple[HealthLevel, HealthReason]]:
    available = disk.available.in_bytes
    if available >= DISK_LOW_BYTES:
        return []
    figures = f"{available / GIB:.1f} GiB free of {disk.total.in_bytes / GIB:.1f} GiB"
    if available <= DISK_FULL_BYTES:
        reason = HealthReason(
            code="disk_full",
            message=f"the models volume is full: {figures}",
            remediation="Free space on this node now; downloads and staging will fail.",
        )
        return [("error", reason)]
    reason = HealthReason(
        code="disk_low",
        message=f"the models volume is nearly full: {figures}",
        remediation="Free space on this node or lower staging_keep_recent_gb.",
    )
    return [("warn", reason)]


def _degraded(warning: str) -> HealthReason:
    """Why it only counts decides what helps: not every failed write is for lack of space."""
    space = any(words in warning for words in _NO_SPACE)
    cure = "Free space on this node" if space else "Cure what the message names on this node"
    return HealthReason(
        code="event_log",
        message=warning,
        remediation=f"{cure}; events are written again by themselves then.",
    )


def _problem(problem: NodeProblem) -> HealthReason | None:
    """None for a code of a newer version."""
    for code in get_args(HealthCode):
        if code == problem.code:
            return HealthReason(code=code, message=problem.message, remediation=problem.remediation)
    return None


def _bridge_loop(service: str) -> HealthReason:
    return HealthReason(
        code="bridge_loop",
        message=f"its network service {service} bridges a loop of Thunderbolt cables: one broadcast"
        " circulates for ever",
        remediation="Turn it off on every node of the loop: sudo networksetup"
        f" -setnetworkserviceenabled '{service}' off",
    )


def _silent(silence_s: float) -> HealthReason:
    return HealthReason(
        code="unreachable",
        message=f"nothing heard from this node for {silence_s:.0f} s",
        remediation="Check its network and Tailscale; if the daemon hangs, restart it.",
    )
