"""When to try again, and whom to trust with a token. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from skulkd.swarm.script_values import optional_text
from skulkd.swarm.telemetry import ExecutionClass

RESULT_RETRIES_MS = (250, 1000, 2500)
RETIRED_HEARTBEAT_S = 15 * 60.0
_FIRST_MS = 1000
_LONGEST_MS = 60_000
_LONGEST_RESULT_S = 300.0
_SHARED = ipaddress.ip_network("100.64.0.0/10")


def retry_delay_ms(streak: int) -> int:
    """After so many failures in a row: doubling, at most a minute."""
    if streak <= 0:
        return 0
    return min(_FIRST_MS << min(streak - 1, 16), _LONGEST_MS)


def result_timeout_s(request_timeout_s: float, job_timeout_s: float) -> float:
    """Results may be large and are worth waiting for."""
    return max(request_timeout_s, min(job_timeout_s, _LONGEST_RESULT_S))


def poll_timeout_s(request_timeout_s: float, wait_ms: int) -> float:
    """The gateway holds the question for `wait_ms`."""
    return max(request_timeout_s, wait_ms / 1000 + 5.0)


def is_private_host(host: str) -> bool:
    """A host of this machine or its own networks; a bare name can be no other."""
    name = host.strip("[]").lower()
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or "." not in name or name.endswith((".local", ".localhost"))
    if isinstance(address, ipaddress.IPv4Address) and address in _SHARED:
        return True
    return address.is_private or address.is_loopback or address.is_link_local


def execution_class(job: Mapping[str, Any]) -> tuple[ExecutionClass, str | None]:
    """What kind of work a job is, and the label of its policy when nobody knows that."""
    policy = job.get("policy")
    label = optional_text(policy.get("execution_class")) if isinstance(policy, Mapping) else None
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
