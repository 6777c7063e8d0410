"""The status of the gateway node, for operators and for `doctor`. No secret is in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from skulkd.swarm.job_records import JobRecords
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.session import GatewaySession, SessionStatus
from skulkd.swarm.telemetry import Report

_SETTINGS = (
    "max_concurrent_jobs",
    "max_concurrent_llm_jobs",
    "generic_jobs_enabled",
    "hardware_telemetry_enabled",
    "load_reporting_enabled",
)


@dataclass(slots=True)
class Supervision:
    """How the sessions of this daemon ended, and why there is none."""

    problem: str | None = None
    """Why there is no session."""
    restarts: int = 0
    last_failure: str | None = None
    last_failure_at: str | None = None
    failing: bool = False
    """The last session failed, and the next has not been started yet."""
    ended: str | None = None
    """Why the supervisor itself has ended; only a restart of the daemon helps."""


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """What the status of an enrolled node is derived from."""

    config: NodeConfig
    paused: bool
    has_token: bool
    session: GatewaySession | None
    supervision: Supervision
    records: JobRecords
    running: Mapping[str, str]
    models: Sequence[str]
    file_problems: Sequence[str] = field(default_factory=list)


def unconfigured_status(records: JobRecords, problems: Sequence[str]) -> Report:
    return {"configured": False, "problems": list(problems), "owed_results": len(records.owed())}


def configured_status(facts: StatusFacts) -> Report:
    config, supervision, session = facts.config, facts.supervision, facts.session
    calls = session.status if session is not None else SessionStatus()
    return {
        "configured": True,
        "node_id": config.node_id,
        "server_name": config.server_name,
        "gateway_base_url": config.gateway_base_url,
        "relay_mode": config.relay_mode,
        "state": _state(facts),
        "last_heartbeat_at": calls.last_heartbeat,
        "heartbeat_error": calls.heartbeat_error,
        "poll_error": calls.poll_error,
        "session_restarts": supervision.restarts,
        "session_error": supervision.last_failure,
        "session_error_at": supervision.last_failure_at,
        "running_jobs": dict(facts.running),
        "jobs_done": 0 if session is None else session.jobs.done,
        "jobs_failed": 0 if session is None else session.jobs.failed,
        "owed_results": len(facts.records.owed()),
        "refused_results": [
            {"job_id": job_id, **asdict(refusal)}
            for job_id, refusal in facts.records.refusals().items()
        ],
        "expose_all_models": config.exposure.expose_all,
        **{key: getattr(config, key) for key in _SETTINGS},
        "models": list(facts.models),
        "problems": _problems(facts, calls),
    }


def _state(facts: StatusFacts) -> str:
    if facts.supervision.ended is not None:
        return "stopped"
    if not facts.has_token:
        return "no token"
    if facts.paused:
        return "paused"
    if facts.session is not None:
        return facts.session.poll_state()
    return "restarting" if facts.supervision.failing else "starting"


def _problems(facts: StatusFacts, calls: SessionStatus) -> list[str]:
    supervision = facts.supervision
    found = list(facts.file_problems)
    if supervision.ended is not None:
        found.append(f"the gateway node has stopped: {supervision.ended}; restart the daemon")
    if not facts.has_token and not facts.file_problems:
        found.append("there is no runtime token; run: skulkctl swarm setup")
    if supervision.failing:
        found.append(f"the session failed and is restarted: {supervision.last_failure}")
    if calls.retired:
        found.append("the gateway has retired this node's credentials (410)")
    elif calls.heartbeat_error:
        found.append(f"the last heartbeat failed: {calls.heartbeat_error}")
    if calls.poll_error and not calls.retired:
        found.append(f"the last poll failed: {calls.poll_error}")
    if owed := len(facts.records.owed()):
        results = "result" if owed == 1 else "results"
        found.append(f"{owed} {results} not delivered to the gateway yet")
    return found
