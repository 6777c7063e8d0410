"""What kind of time passes on a rank, by its newest entry. Pure."""

from __future__ import annotations

from enum import StrEnum

from skulkctl.views.read import Document, text

AT_REST = frozenset({"idle", "created", "shutdown_cleanup", "completion"})
PLANNED = frozenset({"RunnerIdle", "RunnerConnected", "RunnerLoaded"})


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


def wait_of(entry: Document | None, status: str, phase: str) -> Wait:
    """What a rank waits for after this entry."""
    event, detail = text(entry, "event"), text(entry, "detail") or ""
    phase = text(entry, "phase") or phase
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


_INSIDE = {
    "pipeline_first_eval_recv": Wait.RECV,
    "pipeline_last_eval_send": Wait.SEND,
    "flush_prefill_async_eval": Wait.SEND,
    "pipeline_last_eval_all_gather": Wait.GATHER,
    "pipeline_step": Wait.STEP,
}
