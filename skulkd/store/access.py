"""Who may use the store server: whoever knows the cluster secret. Pure.

Nodes show a token made from the secret and never the secret itself, so a store that somebody put
in our way learns nothing it could use against the rest of the cluster. Operators with curl may
send the secret, unless that is switched off.
"""

import hashlib
import hmac

_PURPOSE = b"skulk model store, version 1"
_BEARER = "bearer "


def store_token(secret: str) -> str:
    """What a node sends as its bearer token."""
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def may_use_store(
    authorization: str | None, secret: str, *, secret_for_operators: bool = True
) -> bool:
    """Whether an Authorization header opens the store. In constant time."""
    if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER or not secret:
        return False
    given = authorization[len(_BEARER) :].strip().encode("utf-8", "surrogateescape")
    token_fits = hmac.compare_digest(given, store_token(secret).encode())
    secret_fits = hmac.compare_digest(given, secret.encode()) and secret_for_operators
    return secret_fits or token_fits
