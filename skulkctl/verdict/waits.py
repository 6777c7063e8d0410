"""What kind of time passes on a rank: by its newest entry, by its pulse, and before it starts.

Entries say what was begun. After "entered the barrier" a rank may wait in it or may never have
come to the collective; only the pulse, which its runner sends every second, tells these apart.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from skulkctl.output.units import age_text
from skulkctl.placement.downloads import progress_text

if TYPE_CHECKING:
    from skulkd.wire.timeline import RunnerLive, RunnerWaiting, TimelineEntry

FILES, MEMORY, RANKS = "files", "memory", "ranks"
"""What a rank may wait for before its process is started."""
AT_REST = frozenset({"idle", "created", "shutdown_cleanup", "completion"})
PLANNED = frozenset({"RunnerIdle", "RunnerConnected", "RunnerLoaded"})
FROZEN_S = 10.0
"""A runner at work sends its pulse every second; this long without one, it does not run."""
STALLED_S = 10.0
"""A transfer without a byte for this long is called stalled."""


class Wait(StrEnum):
    """What kind of time passes on a rank; the value is its fill character in lanes."""

    LOCAL = "#"
    RECV = "<"
    SEND = ">"
    GATHER = "+"
    BARRIER = "|"
    AGREEMENT = "&"
    PLANNER = "~"
    STEP = "%"
    AFTER = "?"
    REST = "."


_INSIDE = {
    "pipeline_first_eval_recv": Wait.RECV,
    "pipeline_last_eval_send": Wait.SEND,
    "flush_prefill_async_eval": Wait.SEND,
    "pipeline_last_eval_all_gather": Wait.GATHER,
    "pipeline_step": Wait.STEP,
}
# Joining MLX's group holds the interpreter, so that no pulse is sent while it lasts.
_SILENT_SITE = "group_handshake"
SITES = {
    "mx_barrier": Wait.BARRIER,
    "pipeline_first_eval_recv": Wait.RECV,
    "pipeline_last_eval_output": Wait.LOCAL,
    "pipeline_last_eval_all_gather": Wait.GATHER,
    "pipeline_step": Wait.STEP,
    "model_eval": Wait.GATHER,
    "model_step": Wait.GATHER,
    "order_wait": Wait.AGREEMENT,
    "task_wait": Wait.AGREEMENT,
    _SILENT_SITE: Wait.GATHER,
}
"""What the places mean that a pulse names."""


def recorded_wait(entry: TimelineEntry | None, status: str, phase: str) -> Wait:
    """What a rank waits for after this entry."""
    event = None if entry is None else entry.event
    detail = "" if entry is None else entry.detail or ""
    phase = phase if entry is None else entry.phase
    if event == "enter":
        return _wait_inside(detail, phase)
    if event == "exit" and detail == "pipeline_last_send":
        return Wait.SEND
    if event == "exit" and detail == "pipeline_last_eval_output":
        return Wait.GATHER
    if status in PLANNED:
        return Wait.PLANNER
    if phase in AT_REST or status == "RunnerReady":
        return Wait.REST
    return Wait.AFTER if event == "exit" else Wait.LOCAL


def _wait_inside(detail: str, phase: str) -> Wait:
    if detail in _INSIDE:
        return _INSIDE[detail]
    if "barrier" in detail or phase in ("prefill_barrier", "decode_barrier"):
        return Wait.BARRIER
    if phase == "task_agreement" or "all_gather" in detail:
        return Wait.AGREEMENT
    return Wait.GATHER if phase == "connect_group" else Wait.LOCAL


def wait_now(recorded: Wait, live: RunnerLive | None) -> Wait:
    """What a rank waits for, by its pulse where that says more than its entries."""
    if live is None or not is_fresh(live):
        return recorded
    return SITES.get(live.site, recorded) if live.site else Wait.LOCAL


def is_frozen(live: RunnerLive) -> bool:
    """At work, and its process does not run."""
    return live.busy and live.silent_seconds >= FROZEN_S and live.site != _SILENT_SITE


def is_fresh(live: RunnerLive) -> bool:
    return live.busy and live.silent_seconds < FROZEN_S


def waiting_text(waiting: RunnerWaiting) -> str:
    """`1.2GiB/3.0GiB, 85.0MiB/s, 18s left`, or why nothing moves; may be empty."""
    done, total = waiting.done_bytes, waiting.total_bytes
    still_s = waiting.still_seconds
    if still_s is not None and still_s >= STALLED_S:
        parts = [progress_text(done, total, None, None), f"no bytes for {age_text(still_s)}"]
    else:
        parts = [progress_text(done, total, waiting.bytes_per_second, waiting.seconds_left)]
    return ", ".join(part for part in (*parts, waiting.detail) if part)


def waiting_label(waiting: RunnerWaiting) -> str:
    """`files 40%`, for a narrow column."""
    if waiting.reason == FILES and waiting.total_bytes:
        return f"files {100 * (waiting.done_bytes or 0) // waiting.total_bytes}%"
    return f"wait: {waiting.reason}"
