"""What a job from the gateway must fulfil before it runs, and which agent it is for. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from skulkd.swarm.catalog import Agent, Exposure, is_exposed
from skulkd.swarm.errors import GatewayError, JobError
from skulkd.swarm.js_values import (
    MAX_ID,
    MAX_NAME,
    first_text,
    is_header_token,
    is_name,
    is_number,
    is_plain_id,
    mapping_of,
    optional_text,
    printable,
)
from skulkd.swarm.telemetry import ExecutionClass

MAX_MESSAGES = 4096
MAX_TOOLS = 512
MAX_RUNTIME_MS = 7 * 24 * 3_600_000
"""No policy of a gateway holds a slot for longer."""
DOCDEX_CREDENTIAL = "attached_mswarm_api_key"
_NAMES = ("agent_slug", "source_agent_slug", "remote_slug", "provider", "adapter", "model")

Job = Mapping[str, Any]


def polled_job(response: Mapping[str, Any]) -> tuple[Job, str | None] | None:
    """The job of a poll and the key that came with it; None without a job.

    Raises GatewayError for a job whose result could not be sent. What else is wrong with a job is
    for `job_flaw` to find.
    """
    job = response.get("job")
    if job is None:
        return None
    if not isinstance(job, Mapping):
        raise GatewayError(f"the gateway sent a job that is a {type(job).__name__}, not an object")
    if not is_plain_id(job.get("job_id")):
        shown = printable(str(job.get("job_id"))[:64])
        raise GatewayError(f"the gateway sent a job whose job_id cannot be used: {shown}")
    request_id = job.get("request_id")
    key = response.get(DOCDEX_CREDENTIAL)
    return (
        {**job, "request_id": request_id if is_plain_id(request_id) else None},
        key if is_header_token(key) else None,
    )


def job_flaw(job: Job) -> str | None:
    """Why a job cannot be run, whatever it asks for; None when its shape is sound."""
    if job.get("request_id") is None:
        return f"request_id must be 1 to {MAX_ID} plain characters"
    for name in _NAMES:
        if job.get(name) is not None and not is_name(job[name]):
            return f"{name} must be one line of at most {MAX_NAME} characters"
    request = job.get("openai_request")
    if not isinstance(request, Mapping):
        return "openai_request must be an object"
    if request.get("model") is not None and not is_name(request["model"]):
        return f"openai_request.model must be one line of at most {MAX_NAME} characters"
    for name, most in (("messages", MAX_MESSAGES), ("tools", MAX_TOOLS)):
        entries = request.get(name)
        if isinstance(entries, list) and len(entries) > most:
            return f"openai_request.{name} has {len(entries)} entries, at most {most} are taken"
    return None


def openai_request(job: Job) -> Mapping[str, Any]:
    return mapping_of(job.get("openai_request"))


def policy_of(job: Job) -> Mapping[str, Any]:
    return mapping_of(job.get("policy"))


def runtime_limit_ms(job: Job, default_ms: int) -> int:
    """How long the model may work on it."""
    limit = policy_of(job).get("max_runtime_ms")
    if isinstance(limit, int | float) and is_number(limit) and limit > 0:
        return min(math.floor(limit), MAX_RUNTIME_MS)
    return default_ms


def execution_class(job: Job) -> tuple[ExecutionClass, str | None]:
    """What kind of work a job is, and the label of its policy when that is not known."""
    label = optional_text(policy_of(job).get("execution_class"))
    match (label or "").lower():
        case "chat":
            return "chat", None
        case "agentic":
            return "agentic", None
        case "generic_job":
            return "generic_job", None
    runtime = optional_text(job.get("execution_runtime"))
    fallback: ExecutionClass = "agentic" if runtime == "codali" else "chat"
    return fallback, label[:64] if label else None


def polled_class(job: Job) -> ExecutionClass:
    """What comes by a poll is chat or agentic, whatever its policy says."""
    kind, _ = execution_class(job)
    return "agentic" if kind == "agentic" else "chat"


def select_agent(job: Job, agents: Sequence[Agent], exposure: Exposure) -> Agent:
    """Raises JobError. A job that names an agent is never given to another with its model."""
    named = first_text(job.get("source_agent_slug"), job.get("agent_slug"))
    name = named or first_text(job.get("model"), openai_request(job).get("model"))
    if name is None:
        raise JobError("selected_agent_unavailable", "the job names neither an agent nor a model")
    agent = next((a for a in agents if name == a.slug or (not named and name == a.model)), None)
    if agent is None:
        raise JobError("selected_agent_unavailable", f"agent {name} is not on this node")
    if not is_exposed(agent, exposure):
        raise JobError("selected_agent_unavailable", f"agent {name} is not exposed by this node")
    if agent.health not in {"healthy", "unknown"}:
        raise JobError("selected_agent_unhealthy", f"agent {name} is {agent.health}")
    return agent


def check_docdex(job: Job, attached_key: str | None) -> None:
    """Raises JobError when the job needs Docdex, which no node of ours has."""
    docdex = mapping_of(job.get("docdex"))
    if docdex.get("required") is not True:
        return
    complete = optional_text(docdex.get("base_url")) and optional_text(docdex.get("repo_id"))
    if not complete or docdex.get("credential_source") != DOCDEX_CREDENTIAL:
        raise JobError(
            "docdex_context_missing",
            "the job needs docdex, and base_url, repo_id or credential_source is missing",
        )
    if attached_key is None:
        raise JobError("docdex_api_key_missing", "the job needs docdex and brought no key for it")
    raise JobError("docdex_context_missing", "this node has no docdex, which the job needs")


def start_body(job: Job, node_id: str, agent: Agent | None) -> dict[str, Any]:
    """The acknowledgement that is sent before the model is asked."""
    slug = None if agent is None else agent.slug
    return {
        "node_id": node_id,
        "agent_slug": optional_text(job.get("agent_slug")) or slug or "",
        "source_agent_slug": optional_text(job.get("source_agent_slug")) or slug,
        "model": first_text(job.get("model"), openai_request(job).get("model")),
    }
