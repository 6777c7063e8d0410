"""How the gateway node stands, for operators and for `doctor`. No secret is in it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from skulkd.swarm.job_book import JobBook
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.session import Session, Standing


@dataclass(slots=True)
class Supervision:
    """What became of the sessions of this daemon."""

    problem: str | None = None
    """Why there is no session."""
    restarts: int = 0
    last_failure: str | None = None
    last_failure_at: str | None = None
    failing: bool = False
    """The last session failed, and the next has not been started yet."""
    ended: str | None = None
    """Why the supervisor itself is gone; only a restart of the daemon helps."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a status is made of."""

    config: NodeConfig
    paused: bool
    has_token: bool
    session: Session | None
    supervision: Supervision
    book: JobBook
    running: dict[str, str]
    models: Sequence[str]
    file_problems: Sequence[str] = field(default_factory=list)


def unconfigured_status(book: JobBook, problems: Sequence[str]) -> dict[str, Any]:
    return {"configured": False, "problems": list(problems), "owed_results": len(book.owed())}


def configured_status(facts: Facts) -> dict[str, Any]:
    config, supervision = facts.config, facts.supervision
    standing = facts.session.standing if facts.session is not None else Standing()
    return {
        "configured": True,
        "node_id": config.node_id,
        "server_name": config.server_name,
        "gateway_base_url": config.gateway_base_url,
        "relay_mode": config.relay_mode,
        "state": _state(facts),
        "last_heartbeat_at": standing.last_heartbeat,
        "heartbeat_error": standing.heartbeat_error,
        "poll_error": standing.poll_error,
        "session_restarts": supervision.restarts,
        "session_error": supervision.last_failure,
        "session_error_at": supervision.last_failure_at,
        "running_jobs": facts.running,
        "jobs_done": standing.jobs_done,
        "jobs_failed": standing.jobs_failed,
        "owed_results": len(facts.book.owed()),
        "refused_results": [
            {
                "job_id": job_id,
                "status": refusal.status,
                "at": refusal.at,
                "message": refusal.message,
            }
            for job_id, refusal in facts.book.refusals().items()
        ],
        "expose_all_models": config.exposure.expose_all,
        "max_concurrent_jobs": config.max_jobs,
        "max_concurrent_llm_jobs": config.max_llm_jobs,
        "generic_jobs_enabled": config.generic_enabled,
        "hardware_telemetry_enabled": config.hardware,
        "load_reporting_enabled": config.load_reporting,
        "models": list(facts.models),
        "problems": _problems(facts, standing),
    }


def _state(facts: Facts) -> str:
    if facts.supervision.ended is not None:
        return "stopped"
    if not facts.has_token:
        return "no token"
    if facts.paused:
        return "paused"
    if facts.session is not None:
        return facts.session.poll_reason()
    return "restarting" if facts.supervision.failing else "starting"


def _problems(facts: Facts, standing: Standing) -> list[str]:
    supervision = facts.supervision
    found = list(facts.file_problems)
    if supervision.ended is not None:
        found.append(f"the gateway node has stopped: {supervision.ended}; restart the daemon")
    if not facts.has_token and not facts.file_problems:
        found.append("there is no runtime token; run: skulkctl swarm setup")
    if supervision.failing:
        found.append(f"the session failed and is restarted: {supervision.last_failure}")
    if standing.retired:
        found.append("the gateway has retired this node's credentials (410)")
    elif standing.heartbeat_error:
        found.append(f"the last heartbeat failed: {standing.heartbeat_error}")
    if standing.poll_error and not standing.retired:
        found.append(f"the last poll failed: {standing.poll_error}")
    if owed := len(facts.book.owed()):
        results = "result" if owed == 1 else "results"
        found.append(f"{owed} {results} not delivered to the gateway yet")
    return found
