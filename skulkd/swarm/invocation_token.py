"""Tokens with which a gateway invokes a node directly: HS256, checked as the reference does."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import jwt

from skulkd.swarm.js_values import is_number, optional_text

if TYPE_CHECKING:
    from jwt.types import Options

INVOKE_SCOPE = "self_hosted.invoke"
GENERIC_SCOPE = "self_hosted.generic_job.invoke"
REQUIRED = ("node_id", "job_id", "request_id", "model")
_INVALID = "self_hosted_invocation_token_invalid"
_SCOPE_DENIED = "self_hosted_invocation_token_scope_denied"
_EXPIRED = "self_hosted_invocation_token_expired"
# The checks of claims below are the reference's: a token is still good in the second of its `exp`.
_SIGNATURE_ONLY: Options = {
    "verify_exp": False,
    "verify_iat": False,
    "verify_nbf": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
# The secret is the gateway's choice; a short one works with the reference, too.
warnings.filterwarnings("ignore", category=jwt.InsecureKeyLengthWarning)


class TokenRefused(Exception):
    """`str()` is the reference's code, or says which claim is missing."""


def verify_token(
    token: str,
    secret: str,
    now_s: float,
    scope: str = INVOKE_SCOPE,
    required: Sequence[str] = REQUIRED,
) -> Mapping[str, Any]:
    """The claims. Raises TokenRefused."""
    try:
        claims = jwt.decode(token, secret, algorithms=["HS256"], options=_SIGNATURE_ONLY)
    except jwt.PyJWTError as error:
        raise TokenRefused(_INVALID) from error
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


def _seconds(moment: object) -> float:
    """Since the epoch; the distant past when it is no time."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return float("-inf")
