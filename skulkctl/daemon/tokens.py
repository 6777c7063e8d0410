"""Calls about access tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Call, call, segment

if TYPE_CHECKING:
    from skulkd.wire.tokens import CreatedToken, CreateTokenRequest, RevokedToken, TokenList

_PATH = "/v1/cluster/tokens"


def tokens() -> Call[TokenList]:
    """Every access token, without its secret part."""
    from skulkd.wire.tokens import TokenList

    return call("GET", _PATH, TokenList)


def create_token(wanted: CreateTokenRequest) -> Call[CreatedToken]:
    """A new token; this answer is the only one that has its secret part."""
    from skulkd.wire.tokens import CreatedToken

    return call("POST", _PATH, CreatedToken, body=wanted)


def revoke_token(token_id: str) -> Call[RevokedToken]:
    """Refuse a token on every node from now on."""
    from skulkd.wire.tokens import RevokedToken

    return call("DELETE", f"{_PATH}/{segment(token_id)}", RevokedToken)
