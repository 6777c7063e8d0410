"""Calls about access tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Call, call

if TYPE_CHECKING:
    from skulkd.wire.tokens import TokenList

PATH = "/v1/cluster/tokens"


def tokens() -> Call[TokenList]:
    """Every access token, without its secret part."""
    from skulkd.wire.tokens import TokenList

    return call("GET", PATH, TokenList)
