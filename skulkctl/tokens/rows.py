"""Access tokens as a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from skulkctl.names import Candidate, find_one
from skulkctl.output.tables import EMPTY, Column, Resource, plain
from skulkctl.output.units import age_text, time_text

if TYPE_CHECKING:
    from skulkd.wire.tokens import CreatedToken, TokenItem

TOKENS = Resource(
    kind="TokenList",
    name_path="name",
    columns=(
        Column("name", "name", "Name of the token, as in the audit log."),
        Column("scopes", "scopes", "Granted scopes."),
        Column("rate", "rate", "Request rate limit, per node.", spare=2),
        Column(
            "concurrency",
            "concurrency",
            "Limit of concurrent requests, per node.",
            right=True,
            spare=3,
        ),
        Column("created", "createdText", "Time since it was created.", spare=1),
        Column("expires", "expiresText", "Time until it expires.", status=True),
        Column(
            "last-used",
            "lastUsedText",
            "Time since its last use; reset when daemons restart.",
            spare=1,
        ),
        Column("id", "tokenId", "Id of the token: the digits after skt_.", wide=True),
    ),
    empty_hint="no tokens yet:  skulkctl token create NAME --scope read",
)


def token_rows(tokens: Iterable[TokenItem], now: datetime) -> list[dict[str, object]]:
    """The rows of the list: each token, and its times seen from now."""
    return [
        {
            **token.model_dump(mode="json"),
            "createdText": ago(token.created, now),
            "expiresText": _expires(token, now),
            "lastUsedText": ago(token.last_used, now),
        }
        for token in tokens
    ]


def find_token(tokens: Iterable[TokenItem], typed: str) -> TokenItem | None:
    """The token with this id or name; the beginning of one does not count, because a revocation
    cannot be undone. Raises UsageMistake when several have the name."""
    candidates = [
        Candidate(token, (token.token_id,), (token.name,), f"{token.token_id}  {token.name}")
        for token in tokens
        if typed in (token.token_id, token.name)
    ]
    return find_one("token", candidates, typed)


def token_page(token: CreatedToken) -> str:
    """A token that was just created, for people."""
    limits = [f"rate {token.rate}"] if token.rate else []
    if token.concurrency is not None:
        limits.append(f"{token.concurrency} open at once")
    lines = [
        token.token,
        "",
        f"  name     {token.name}",
        f"  scopes   {plain(token.scopes)}",
        f"  limits   {', '.join(limits) or 'none'}",
        f"  expires  {time_text(token.expires) if token.expires else 'never'}",
    ]
    return "".join(f"{line}\n" for line in lines)


def ago(moment: datetime | None, now: datetime) -> str:
    """`3d ago`, or `-` when it never happened."""
    return EMPTY if moment is None else f"{age_text(max(0.0, (now - moment).total_seconds()))} ago"


def _expires(token: TokenItem, now: datetime) -> str:
    if token.expires is None:
        return "never"
    if token.expired:
        return "expired"
    return f"in {age_text(max(0.0, (token.expires - now).total_seconds()))}"
