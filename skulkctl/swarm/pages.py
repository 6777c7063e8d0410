"""The gateway node on a page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.output.layout import pairs
from skulkctl.output.tables import EMPTY, plain

if TYPE_CHECKING:
    from skulkd.wire.swarm import Heartbeat, SetupPlan, SwarmStatus

Lines = list[tuple[str, str]]


def status_page(status: SwarmStatus, room: int | None = None) -> str:
    """The enrolment, its work and its problems."""
    if status.configured:
        lines = _enrolled(status)
    else:
        # An enrolment that cannot be read is not the same as none.
        lines = [("gateway node", "stopped" if status.problems else "not enrolled")]
    return pairs([*lines, *(("problem", problem) for problem in status.problems)], room)


def _enrolled(status: SwarmStatus) -> Lines:
    running = [f"{job[:8]} ({what})" for job, what in status.running_jobs.items()]
    return [
        ("gateway node", plain(status.node_id)),
        ("state", plain(status.state)),
        ("gateway", plain(status.gateway_base_url)),
        ("server name", plain(status.server_name)),
        ("models", ", ".join(status.models) or EMPTY),
        ("jobs", f"{status.jobs_done} done, {status.jobs_failed} failed"),
        ("running", plain(", ".join(running))),
        ("slots", plain(status.max_concurrent_llm_jobs)),
        ("last heartbeat", plain(status.last_heartbeat_at)),
        ("owed results", str(status.owed_results)),
        *_refused(status),
        *_restarts(status),
        ("generic jobs", _switch(status.generic_jobs_enabled)),
        ("hardware", _reported(status.hardware_telemetry_enabled)),
    ]


def _refused(status: SwarmStatus) -> Lines:
    """Results that the gateway will never take, newest first."""
    return [
        ("refused result", plain(f"{result.job_id} at {result.at}: {result.message}"))
        for result in reversed(status.refused_results)
    ]


def _restarts(status: SwarmStatus) -> Lines:
    if not status.session_restarts:
        return []
    last = f"last at {status.session_error_at}: {status.session_error}"
    return [("restarts", plain(f"{status.session_restarts}, {last}"))]


def plan_page(plan: SetupPlan, room: int | None = None) -> str:
    """What a set-up would do."""
    offered = ", ".join(plan.model_allowlist) or ("all" if plan.expose_all_models else "none")
    blocked = ", ".join(plan.model_blocklist)
    return pairs(
        [
            ("dry run", "nothing was sent or changed"),
            ("gateway", plain(plan.gateway_base_url)),
            ("server name", plain(plan.server_name)),
            ("models", plain(offered + (f", except {blocked}" if blocked else ""))),
            ("jobs at once", plain(plan.max_concurrent_llm_jobs)),
            ("generic jobs", _switch(plan.generic_jobs_enabled)),
            ("hardware", _reported(plan.hardware_telemetry_enabled)),
        ],
        room,
    )


def heartbeat_line(heartbeat: Heartbeat) -> str:
    """What one heartbeat came to."""
    count, capacity = heartbeat.model_count, heartbeat.capacity
    return (
        f"heartbeat accepted: {heartbeat.status}, {count} model{'' if count == 1 else 's'},"
        f" {capacity.active_jobs} active jobs, free slots: {capacity.free_slots}\n"
    )


def _switch(enabled: bool) -> str:
    return "on" if enabled else "off"


def _reported(enabled: bool) -> str:
    return "reported" if enabled else "not reported"
