"""When to try again, and whom to trust with a token. Pure."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import Any

from skulkd.swarm.script_values import optional_text
from skulkd.swarm.telemetry import ExecutionClass

WAIT_MS = 25_000
"""How long a gateway is asked to hold a poll until there is a job."""
IDLE_POLL_S = 0.5
"""Between two polls that brought no work."""
RESULT_RETRIES_MS = (250, 1000, 2500)
REFUSED_FOR_GOOD = frozenset({404, 410, 422})
"""Statuses after which a result is not sent again: the job is unknown, over, or unacceptable."""
RETIRED_HEARTBEAT_S = 15 * 60.0
_FIRST_MS = 1000
_LONGEST_MS = 60_000
_LONGEST_RESULT_S = 300.0
_PRIVATE = {
    4: [
        ipaddress.ip_network(network)
        for network in (
            "0.0.0.0/32",  # this machine, for a client
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.168.0.0/16",
        )
    ],
    6: [ipaddress.ip_network(network) for network in ("::/127", "fc00::/7", "fe80::/10")],
}
# ASCII only: a resolver turns other digits and dots into ASCII ones.
_LABEL = r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?"
_LOCAL_NAME = re.compile(rf"{_LABEL}|(?:{_LABEL}\.)+(?:local|localhost)")


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
    """A host of this machine or its own networks.

    Addresses are read as resolvers read them, so `134744072` is 8.8.8.8. A name without a dot
    can only be resolved by the local network.
    """
    name = host.strip("[]").lower()
    address = _address(name)
    if address is not None:
        # A zone id, as in fe80::1%eth0, does not change the network.
        return any(address in network for network in _PRIVATE[address.version])
    return _LOCAL_NAME.fullmatch(name) is not None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return _legacy_ipv4(name)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _legacy_ipv4(name: str) -> ipaddress.IPv4Address | None:
    """One to four decimal, octal or hexadecimal numbers."""
    try:
        return ipaddress.IPv4Address(socket.inet_aton(name))
    except (OSError, ValueError):
        return None


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
