"""Tokens by which a gateway invokes a node directly: HS256 over two of three parts. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from skulkd.swarm.script_values import is_number, optional_text

INVOKE_SCOPE = "self_hosted.invoke"
GENERIC_SCOPE = "self_hosted.generic_job.invoke"
_INVALID = "self_hosted_invocation_token_invalid"
_SCOPE_DENIED = "self_hosted_invocation_token_scope_denied"
_EXPIRED = "self_hosted_invocation_token_expired"
REQUIRED = ("node_id", "job_id", "request_id", "model")


class TokenRefused(Exception):
    """`str()` is the reference's code, or says which claim is missing."""


def verify_token(
    token: str,
    secret: str,
    now_s: float,
    scope: str = INVOKE_SCOPE,
    required: Sequence[str] = REQUIRED,
) -> Mapping[str, Any]:
    """The claims. Raises TokenRefused. The header part is not looked at: only HS256 is made."""
    claims = _signed_claims(token, secret)
    if claims.get("scope") != scope:
        raise TokenRefused(_SCOPE_DENIED)
    expires = claims.get("exp")
    if not isinstance(expires, int | float) or not is_number(expires) or expires < now_s:
        raise TokenRefused(_EXPIRED)
    if _seconds(claims.get("deadline_at")) < now_s:
        raise TokenRefused(_EXPIRED)
    for name in required:
        if optional_text(claims.get(name)) is None:
            raise TokenRefused(f"{name} is required")
    return claims


def _signed_claims(token: str, secret: str) -> Mapping[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused(_INVALID)
    mac = hmac.new(secret.encode(), f"{parts[0]}.{parts[1]}".encode(), hashlib.sha256).digest()
    try:
        if not hmac.compare_digest(mac, _decode(parts[2])):
            raise TokenRefused(_INVALID)
        claims = json.loads(_decode(parts[1]))
    except (ValueError, binascii.Error):
        raise TokenRefused(_INVALID) from None
    if not isinstance(claims, dict):
        raise TokenRefused(_INVALID)
    return claims


def _decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _seconds(moment: object) -> float:
    """When, since the epoch; long ago when it is no time."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return float("-inf")
