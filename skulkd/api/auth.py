"""Who may ask: one pure decision over the peer's address and a few headers.

Knows no request object and reads no settings; the middleware brings both. Headers
that a proxy could add (X-Forwarded-For and the like) are never considered.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

from skulkd.settings.overrides import host_aliases

BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say about access."""

    secret: str = field(repr=False)
    own_names: frozenset[str]
    token_on_loopback: bool = False
    cors_origins: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is turned away."""

    status: int
    message: str


NO_TOKEN = Refusal(
    401,
    "this node wants the cluster secret: send it as 'Authorization: Bearer <secret>'",
)
WRONG_TOKEN = Refusal(401, "the cluster secret in the Authorization header is not the right one")
FOREIGN_HOST = Refusal(
    403,
    "the Host header names neither this machine nor an IP address; "
    "a web page may be trying to reach the daemon",
)
FOREIGN_ORIGIN = Refusal(
    403, "a web page from another origin may not use this node (see api.cors_origins)"
)


def decide(
    peer: str | None,
    authorization: str | None,
    host: str | None,
    origin: str | None,
    policy: Policy,
) -> Refusal | None:
    """None lets the request in. A right token is enough from anywhere."""
    if authorization is not None and token_matches(authorization, policy.secret):
        return None
    if policy.token_on_loopback or peer is None or not is_loopback(peer):
        return NO_TOKEN if authorization is None else WRONG_TOKEN
    if host and not is_own_host(host, policy.own_names):
        return FOREIGN_HOST
    if origin is not None and not is_friendly_origin(origin, host, policy.cors_origins):
        return FOREIGN_ORIGIN
    return None


def token_matches(authorization: str, secret: str) -> bool:
    """Constant-time comparison of a bearer token with the secret."""
    if authorization[: len(BEARER)].lower() != BEARER:
        return False
    given = authorization[len(BEARER) :].strip().encode("utf-8", "surrogateescape")
    return bool(secret) and hmac.compare_digest(given, secret.encode())


@lru_cache(maxsize=256)
def is_loopback(peer: str) -> bool:
    """Whether an address literal is this machine, in IPv4, IPv6 or IPv4-mapped form."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


@lru_cache(maxsize=256)
def is_own_host(host: str, own_names: frozenset[str]) -> bool:
    """Whether a Host header names this machine; IP literals cannot be rebound by DNS."""
    name = _hostname(host)
    if name is None:
        return False
    if name in own_names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_friendly_origin(origin: str, host: str | None, allowed: frozenset[str]) -> bool:
    """Same origin as the Host header, or one that the settings name."""
    if origin in allowed:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(host) and parts.netloc == host


def cors_headers(origin: str | None, policy: Policy) -> dict[str, str]:
    """What tells a browser that a page of a configured origin may read the answer."""
    if not policy.cors_origins:
        return {}
    if origin is None or origin not in policy.cors_origins:
        return {"Vary": "Origin"}
    return {"Vary": "Origin", "Access-Control-Allow-Origin": origin}


def own_names(*names: str) -> frozenset[str]:
    """Every name under which this machine may be addressed."""
    return frozenset({"localhost"}).union(*(host_aliases(name) for name in names))


def _hostname(host: str) -> str | None:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return None
    return name.rstrip(".") if name else None
