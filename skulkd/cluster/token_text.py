"""The text of an access token: made here, shown once, and kept by nobody but its owner. Pure.

`skt_`, twelve hex digits that say which token it is, and 256 random bits. Nodes keep a plain
SHA-256 of the text: slow or keyed hashes protect passwords that can be guessed, and 256 random
bits cannot. A fast one keeps the check out of the way of every request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from skulkd.wire.ids import TokenId

PREFIX = "skt_"
_ID_BYTES = 6
_ID_END = len(PREFIX) + 2 * _ID_BYTES


def new_token() -> tuple[TokenId, str]:
    """Id and text of a token that nobody has."""
    token_id = TokenId(secrets.token_hex(_ID_BYTES))
    return token_id, f"{PREFIX}{token_id}{secrets.token_urlsafe(32)}"


def id_of(text: str) -> TokenId:
    """Which token the text claims to be."""
    return TokenId(text[len(PREFIX) : _ID_END])


def digest_of(text: str) -> str:
    """What nodes keep of it."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def fits(text: str, digest: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(digest_of(text), digest)
