"""Who asks, and may they: one pure decision over the peer's address and a few headers.

Knows no request object and reads no settings; the middleware brings both. Headers
that a proxy could add (X-Forwarded-For and the like) are never considered.
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

from skulkd.api.callers import CLUSTER_SECRET, LOCAL, Caller
from skulkd.cluster.token_text import PREFIX, fits, id_of
from skulkd.cluster.tokens import TokenTable
from skulkd.machine.ports import is_loopback
from skulkd.settings.overrides import host_aliases

BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say about access."""

    secret: str = field(repr=False)
    own_names: frozenset[str]
    token_on_loopback: bool = False
    cors_origins: frozenset[str] = frozenset()
    secret_for_operators: bool = True
    """False: the secret is for nodes among themselves and opens nothing here."""
    tokens: Callable[[], TokenTable] = TokenTable
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class AuthRefusal:
    """Why a request is turned away."""

    status: int
    code: str
    message: str
    hints: tuple[str, ...] = ()


_CREATE = ("create a token: skulkctl token create NAME --scope SCOPE",)
NO_TOKEN = AuthRefusal(
    401,
    "token_required",
    "this node requires authentication: send 'Authorization: Bearer TOKEN' with a token or the "
    "cluster secret",
    _CREATE,
)
WRONG_TOKEN = AuthRefusal(
    401,
    "token_unknown",
    "the Authorization header has neither a token of this cluster nor the cluster secret",
    _CREATE,
)
UNKNOWN_TOKEN = AuthRefusal(401, "token_unknown", "this cluster has no such token", _CREATE)
REVOKED_TOKEN = AuthRefusal(401, "token_revoked", "the token was revoked", _CREATE)
EXPIRED_TOKEN = AuthRefusal(401, "token_expired", "the token has expired", _CREATE)
SECRET_OFF = AuthRefusal(
    401,
    "secret_not_accepted",
    "this node does not accept the cluster secret here (api.secret_for_operators is false); "
    "send a token",
    _CREATE,
)
FOREIGN_HOST = AuthRefusal(
    403,
    "foreign_host",
    "the Host header names neither this machine nor an IP address; "
    "a web page may be trying to reach the daemon",
)
FOREIGN_ORIGIN = AuthRefusal(
    403,
    "foreign_origin",
    "a web page from another origin may not use this node (see api.cors_origins)",
)


def decide(
    peer: str | None,
    authorization: str | None,
    host: str | None,
    origin: str | None,
    policy: Policy,
) -> Caller | AuthRefusal:
    """A right token is enough from anywhere; one that is not valid any more opens nothing."""
    if authorization is not None and (found := _by_header(authorization, policy)) is not None:
        return found
    if policy.token_on_loopback or peer is None or not is_loopback(peer):
        return _unknown(authorization, policy)
    if host and not is_own_host(host, policy.own_names):
        return FOREIGN_HOST
    if origin is not None and not is_friendly_origin(origin, host, policy.cors_origins):
        return FOREIGN_ORIGIN
    return LOCAL


def _by_header(authorization: str, policy: Policy) -> Caller | AuthRefusal | None:
    """None when the header decides nothing: whoever is local needs none and may send anything."""
    given = bearer_token(authorization)
    if secret_matches(given, policy.secret):
        return CLUSTER_SECRET if policy.secret_for_operators else None
    return _by_token(given, policy) if given.startswith(PREFIX) else None


def _unknown(authorization: str | None, policy: Policy) -> AuthRefusal:
    if authorization is None:
        return NO_TOKEN
    is_secret = secret_matches(bearer_token(authorization), policy.secret)
    return SECRET_OFF if is_secret else WRONG_TOKEN


def _by_token(text: str, policy: Policy) -> Caller | AuthRefusal:
    table, token_id = policy.tokens(), id_of(text)
    token = table.tokens.get(token_id)
    if token is None:
        return REVOKED_TOKEN if table.is_revoked(token_id) else UNKNOWN_TOKEN
    if not fits(text, token.digest):
        return UNKNOWN_TOKEN
    if token.expires is not None and policy.clock() >= token.expires.timestamp():
        return EXPIRED_TOKEN
    return Caller("token", token)


def authorization(headers: Mapping[str, str]) -> str | None:
    """The Authorization header; Anthropic's clients send the same token as `x-api-key`."""
    if (given := headers.get("Authorization")) is not None:
        return given
    key = headers.get("X-Api-Key")
    return None if key is None else f"Bearer {key}"


def bearer_token(authorization: str) -> str:
    """The token of an Authorization header; empty when it has none."""
    if authorization[: len(BEARER)].lower() != BEARER:
        return ""
    return authorization[len(BEARER) :].strip()


def secret_matches(given: str, secret: str) -> bool:
    """Constant-time comparison of a bearer token with the secret."""
    bare = given.encode("utf-8", "surrogateescape")
    return bool(secret) and hmac.compare_digest(bare, secret.encode())


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
