"""Access tokens as a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from skulkctl.tables import EMPTY, Column, Resource, plain
from skulkctl.units import age_text, parse_time
from skulkctl.views.read import Document, flag, mapping, sequence, text

TOKENS = Resource(
    kind="TokenList",
    name_path="name",
    columns=(
        Column("name", "name", "Name of the token; the audit log has it."),
        Column("scopes", "scopes", "What it may do."),
        Column("rate", "rate", "Requests it may make, on each node.", spare=2),
        Column(
            "concurrency",
            "concurrency",
            "Requests it may have open at once, on each node.",
            right=True,
            spare=3,
        ),
        Column("created", "createdText", "How long ago it was created.", spare=1),
        Column("expires", "expiresText", "When it stops working.", status=True),
        Column("last-used", "lastUsedText", "How long ago, since the daemons started.", spare=1),
        Column("id", "tokenId", "The digits behind skt_ in the token.", wide=True),
    ),
    empty_hint="no tokens yet:  skulkctl token create NAME --scope read",
)


def token_items(answer: object, now: datetime | None = None) -> list[dict[str, object]]:
    """The rows of the list."""
    now = now or datetime.now(UTC)
    return [
        {
            **mapping(one),
            "createdText": _ago(text(one, "created"), now),
            "expiresText": _expires(one, now),
            "lastUsedText": _ago(text(one, "lastUsed"), now),
        }
        for one in sequence(answer, "tokens")
    ]


def find_tokens(items: Iterable[Document], name: str) -> list[Document]:
    """Those with this id or name."""
    items = list(items)
    by_id = [item for item in items if item.get("tokenId") == name]
    return by_id or [item for item in items if item.get("name") == name]


def token_page(token: object) -> str:
    """A token that was just created, for people."""
    limits = [f"rate {plain(rate)}"] if (rate := mapping(token).get("rate")) else []
    if (open_at_once := mapping(token).get("concurrency")) is not None:
        limits.append(f"{plain(open_at_once)} open at once")
    expires = text(token, "expires")
    lines = [
        text(token, "token") or EMPTY,
        "",
        f"  name     {text(token, 'name')}",
        f"  scopes   {plain(mapping(token).get('scopes'))}",
        f"  limits   {', '.join(limits) or 'none'}",
        f"  expires  {expires or 'never'}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _ago(moment: str | None, now: datetime) -> str:
    when = None if moment is None else parse_time(moment)
    return EMPTY if when is None else f"{age_text(max(0.0, (now - when).total_seconds()))} ago"


def _expires(token: object, now: datetime) -> str:
    moment = text(token, "expires")
    when = None if moment is None else parse_time(moment)
    if when is None:
        return "never"
    if flag(token, "expired"):
        return "expired"
    return f"in {age_text(max(0.0, (when - now).total_seconds()))}"
