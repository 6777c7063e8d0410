"""`skulkctl token`: create, list and revoke access tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import NotFound, PartialAnswer, Refused, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, TABLE, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.views.read import Document

app = new_app("Create, list and revoke access tokens.")

PATH = "/v1/cluster/tokens"

CREATE_EXAMPLES = """
  skulkctl token create grafana --scope read
  skulkctl token create webshop --scope infer --rate 600/min --concurrency 8 --expires 90d
  skulkctl token create ci --scope operate -q > ci.token
"""


@verb(app, "create", REACH, FORMAT, CONFIRM, examples=CREATE_EXAMPLES)
def create(
    call: Invocation,
    new_name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="For the list and the audit log: who uses it.", show_default=False
        ),
    ],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="read, infer or operate (repeatable, or with commas).",
            show_default=False,
        ),
    ],
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N/UNIT", help="Most requests, as 10/s, 60/min or 500/h."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", min=1, help="Most requests open at once."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="Stop accepting it after this, as 90d."),
    ] = None,
) -> int:
    """Create an access token and print it, once.

    read: every view of the cluster. infer: chat, completions, the list of models, and cancelling
    its own requests. operate: everything, tokens included. Limits count on each node. Nobody can
    show the token again: keep it in a file with mode 600. With -q only the token is printed.
    """
    from skulkctl.confirm import protect
    from skulkctl.views.read import mapping, text
    from skulkctl.views.tokens import token_page

    body = _request(new_name, scope, rate, concurrency, expires)
    if call.options.get("dry_run"):
        scopes = ", ".join(_scopes(scope))
        call.talk.note(f"would create token {new_name} with the scopes {scopes}")
        return ExitCode.DONE
    protect(call, f"create token {new_name}")
    answer = call.client.change("POST", PATH, body)
    token = text(answer, "token") or ""
    write(call.style.single("Token", mapping(answer), token, lambda _: token_page(answer)))
    call.talk.hint("it is not shown again; use it:  skulkctl context set NAME --token-file FILE")
    return ExitCode.DONE


def _request(
    name: str, scope: list[str], rate: str | None, concurrency: int | None, expires: str | None
) -> dict[str, object]:
    """The body of the request. Raises UsageMistake."""
    from skulkd.wire.tokens import check_token_name, parse_rate

    body: dict[str, object] = {"name": name, "scopes": _scopes(scope)}
    option = "NAME"
    try:
        check_token_name(name)
        option = "--rate"
        if rate is not None:
            parse_rate(rate)
            body["rate"] = rate
        option = "--expires"
        if expires is not None:
            body["expiresInS"] = _lifetime(expires)
    except ValueError as error:
        raise UsageMistake(f"{option}: {error}") from None
    if concurrency is not None:
        body["concurrency"] = concurrency
    return body


def _lifetime(typed: str) -> float:
    """Seconds. Raises ValueError."""
    from skulkctl.units import parse_duration
    from skulkd.wire.tokens import MAX_EXPIRES_S

    seconds = parse_duration(typed)
    if seconds > MAX_EXPIRES_S:
        raise ValueError(f"{typed} is more than ten years; leave it out for a token that lasts")
    return seconds


def _scopes(typed: list[str]) -> list[str]:
    """Raises UsageMistake."""
    from skulkd.wire.tokens import SCOPES

    given = [word.strip().lower() for entry in typed for word in entry.split(",")]
    wrong = [word for word in given if word not in SCOPES]
    if wrong:
        raise UsageMistake(
            f"--scope: {wrong[0] or repr('')} is not a scope", f"scopes: {', '.join(SCOPES)}"
        )
    return [scope for scope in SCOPES if scope in given]


@verb(
    app, "list", REACH, FORMAT, TABLE,
    examples="  skulkctl token list\n  skulkctl token ls -o json\n",
)  # fmt: skip
def list_(call: Invocation) -> int:
    """List the access tokens of the cluster; never the tokens themselves.

    LAST USED is asked of every node and begins anew when daemons start. Exit 8 when a node did
    not answer.
    """
    from skulkctl.views.read import sequence
    from skulkctl.views.tokens import TOKENS, token_items

    answer = call.client.get(PATH)
    call.show_rows(TOKENS, token_items(answer))
    silent = [str(name) for name in sequence(answer, "unreachableNodes")]
    if silent:
        raise PartialAnswer(f"the last uses on {', '.join(silent)} are not known")
    return ExitCode.DONE


@verb(
    app, "revoke", REACH, FORMAT, CONFIRM,
    examples="  skulkctl token revoke webshop\n  skulkctl token revoke ci --yes\n",
)  # fmt: skip
def revoke(
    call: Invocation,
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="Name or id of the token.", show_default=False)
    ],
) -> int:
    """Revoke an access token on every node, for good; its open requests end.

    Asks first.
    """
    from skulkctl.client import path_segment
    from skulkctl.confirm import Danger, protect
    from skulkctl.views.read import mapping
    from skulkctl.views.tokens import token_items

    found = _one(token_items(call.client.get(PATH)), token)
    what = f"revoke token {found['name']}"
    why = (f"scopes {_words(found['scopes'])}, last used {found['lastUsedText']}",)
    if call.options.get("dry_run"):
        call.talk.note(f"would {what}: {why[0]}")
        return ExitCode.DONE
    protect(call, what, Danger(what, why=why))
    answer = call.client.change("DELETE", f"{PATH}/{path_segment(str(found['tokenId']))}")
    line = f"revoked {found['name']}\n"
    write(call.style.single("RevokedToken", mapping(answer), token, lambda _: line))
    return ExitCode.DONE


def _words(value: object) -> str:
    from skulkctl.tables import plain

    return plain(value)


def _one(items: list[dict[str, object]], token: str) -> Document:
    """Raises NotFound, Refused when the name is not enough."""
    from skulkctl.views.tokens import find_tokens

    found = find_tokens(items, token)
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(str(item["tokenId"]) for item in found)
        raise Refused(
            f"{len(found)} tokens are named {token}",
            f"ids: {ids}",
            hints=["revoke them by id:  skulkctl token revoke ID"],
        )
    names = ", ".join(str(item["name"]) for item in items) or "none"
    raise NotFound(f"no token named {token}", f"tokens: {names}", hints=["skulkctl token list"])
