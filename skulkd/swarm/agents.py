"""Which agent a job is for: strict when it names one, by model only when it names none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skulkd.swarm.catalog import Exposure, agent_health, default_model, is_exposed
from skulkd.swarm.messages import explicit_code
from skulkd.swarm.script_values import first_text, optional_text

DOCDEX_CREDENTIAL = "attached_mswarm_api_key"

Agent = Mapping[str, Any]
Job = Mapping[str, Any]


class JobError(Exception):
    """A job cannot be run, for a reason that has a code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = explicit_code(code) or code


def openai_request(job: Job) -> Mapping[str, Any]:
    asked = job.get("openai_request")
    return asked if isinstance(asked, Mapping) else {}


def select_agent(job: Job, agents: Sequence[Agent], exposure: Exposure) -> Agent:
    """Raises JobError. A job that names an agent is never given to another with its model."""
    strict = first_text(job.get("source_agent_slug"), job.get("agent_slug"))
    wanted = strict or first_text(job.get("model"), openai_request(job).get("model"))
    if wanted is None:
        raise JobError("selected_agent_unavailable", "the job names neither an agent nor a model")
    agent = next((agent for agent in agents if _matches(agent, wanted, strict)), None)
    if agent is None:
        raise JobError("selected_agent_unavailable", f"agent {wanted} is not on this node")
    if not is_exposed(agent, exposure):
        raise JobError("selected_agent_unavailable", f"agent {wanted} is not exposed by this node")
    health = agent_health(agent)
    if health not in {"healthy", "unknown"}:
        raise JobError("selected_agent_unhealthy", f"agent {wanted} is {health}")
    return agent


def _matches(agent: Agent, wanted: str, strict: str | None) -> bool:
    slug = optional_text(agent.get("slug"))
    return slug == wanted or (strict is None and default_model(agent) == wanted)


def check_docdex(job: Job, attached_key: str | None, *, offered: bool) -> None:
    """Raises JobError when the job needs documents that cannot be had here.

    `offered` is for a node that has Docdex; one without fails such jobs before they start.
    """
    docdex = job.get("docdex")
    if not isinstance(docdex, Mapping) or docdex.get("required") is not True:
        return
    complete = optional_text(docdex.get("base_url")) and optional_text(docdex.get("repo_id"))
    if not complete or docdex.get("credential_source") != DOCDEX_CREDENTIAL:
        raise JobError(
            "docdex_context_missing", "the job needs docdex and says not where or by what right"
        )
    if attached_key is None:
        raise JobError("docdex_api_key_missing", "the job needs docdex and brought no key for it")
    if not offered:
        raise JobError("docdex_context_missing", "this node has no docdex, which the job needs")


def start_body(job: Job, node_id: str, agent: Agent | None) -> dict[str, Any]:
    """The acknowledgement that is sent before the model is asked."""
    slug = optional_text(agent.get("slug")) if agent is not None else None
    return {
        "node_id": node_id,
        "agent_slug": optional_text(job.get("agent_slug")) or slug or "",
        "source_agent_slug": optional_text(job.get("source_agent_slug")) or slug,
        "model": first_text(job.get("model"), openai_request(job).get("model")),
    }
