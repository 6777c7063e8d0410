"""The gateway node on a page: from `/v1/swarm` to lines for people. Pure."""

from __future__ import annotations

from skulkctl.layout import pairs
from skulkctl.tables import EMPTY, plain
from skulkctl.views.read import Document, flag, integer, mapping, sequence, text


def swarm_screen(status: Document, room: int | None = None) -> str:
    if not flag(status, "configured"):
        lines = [("gateway node", "not enrolled")]
    else:
        jobs = mapping(status, "running_jobs")
        running = ", ".join(f"{job[:8]} ({what})" for job, what in jobs.items()) or EMPTY
        lines = [
            ("gateway node", plain(text(status, "node_id"))),
            ("state", plain(text(status, "state"))),
            ("gateway", plain(text(status, "gateway_base_url"))),
            ("server name", plain(text(status, "server_name"))),
            ("models", ", ".join(str(m) for m in sequence(status, "models")) or EMPTY),
            (
                "jobs",
                f"{integer(status, 'jobs_done')} done, {integer(status, 'jobs_failed')} failed",
            ),
            ("running", running),
            ("places", plain(integer(status, "max_concurrent_llm_jobs"))),
            ("last heartbeat", plain(text(status, "last_heartbeat_at"))),
            ("owed results", str(integer(status, "owed_results") or 0)),
            ("generic jobs", "on" if flag(status, "generic_jobs_enabled") else "off"),
            ("hardware", "told" if flag(status, "hardware_telemetry_enabled") else "not told"),
        ]
    lines += [("problem", str(problem)) for problem in sequence(status, "problems")]
    return pairs(lines, room)


def heartbeat_line(report: Document) -> str:
    """What one heartbeat came to."""
    capacity = mapping(report, "capacity")
    return (
        f"heartbeat taken: {text(report, 'status')}, {integer(report, 'model_count')} models,"
        f" {integer(capacity, 'active_jobs')} active,"
        f" {integer(capacity, 'free_slots')} free places\n"
    )
