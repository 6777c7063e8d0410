"""The gateway node on a page: from `/v1/swarm` to lines for people. Pure."""

from __future__ import annotations

from skulkctl.layout import pairs
from skulkctl.tables import EMPTY, plain
from skulkctl.views.read import Document, flag, integer, mapping, sequence, text


def swarm_screen(status: Document, room: int | None = None) -> str:
    if not flag(status, "configured"):
        # An enrolment that cannot be read is not the same as none.
        broken = sequence(status, "problems")
        lines = [("gateway node", "stopped" if broken else "not enrolled")]
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
            ("running", plain(running)),
            ("slots", plain(integer(status, "max_concurrent_llm_jobs"))),
            ("last heartbeat", plain(text(status, "last_heartbeat_at"))),
            ("owed results", str(integer(status, "owed_results") or 0)),
            *_refused(status),
            *_restarts(status),
            ("generic jobs", "on" if flag(status, "generic_jobs_enabled") else "off"),
            ("hardware", _reported(status)),
        ]
    lines += [("problem", str(problem)) for problem in sequence(status, "problems")]
    return pairs(lines, room)


def _reported(document: Document) -> str:
    return "reported" if flag(document, "hardware_telemetry_enabled") else "not reported"


def _refused(status: Document) -> list[tuple[str, str]]:
    """Results that the gateway will never take, newest first."""
    found = [mapping(entry) for entry in sequence(status, "refused_results")]
    return [
        (
            "refused result",
            plain(f"{text(entry, 'job_id')} at {text(entry, 'at')}: {text(entry, 'message')}"),
        )
        for entry in reversed(found)
    ]


def _restarts(status: Document) -> list[tuple[str, str]]:
    count = integer(status, "session_restarts")
    if not count:
        return []
    last = f"{count}, last at {text(status, 'session_error_at')}: {text(status, 'session_error')}"
    return [("restarts", plain(last))]


def plan_screen(plan: Document, room: int | None = None) -> str:
    """What a set-up would do, from the report of a dry run."""
    allowed = ", ".join(str(name) for name in sequence(plan, "model_allowlist"))
    blocked = ", ".join(str(name) for name in sequence(plan, "model_blocklist"))
    offered = allowed or ("all" if flag(plan, "expose_all_models") else "none")
    return pairs(
        [
            ("dry run", "nothing was sent or changed"),
            ("gateway", plain(text(plan, "gateway_base_url"))),
            ("server name", plain(text(plan, "server_name"))),
            ("models", plain(offered + (f", except {blocked}" if blocked else ""))),
            ("jobs at once", plain(integer(plan, "max_concurrent_llm_jobs"))),
            ("generic jobs", "on" if flag(plan, "generic_jobs_enabled") else "off"),
            ("hardware", _reported(plan)),
        ],
        room,
    )


def heartbeat_line(report: Document) -> str:
    """What one heartbeat came to."""
    capacity = mapping(report, "capacity")
    models = integer(report, "model_count")
    return (
        f"heartbeat accepted: {text(report, 'status')}, {models} model{'' if models == 1 else 's'},"
        f" {integer(capacity, 'active_jobs')} active jobs,"
        f" free slots: {integer(capacity, 'free_slots')}\n"
    )
