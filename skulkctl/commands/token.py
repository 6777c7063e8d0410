"""`skulkctl token`: create, list and revoke access tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, Table, new_app, values, verb
from skulkctl.errors import NotFound, PartialAnswer, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from skulkd.wire.tokens import CreateTokenRequest, Scope

app = new_app("Create, list and revoke access tokens.")

T = TypeVar("T")

CREATE_EXAMPLES = """
  skulkctl token create grafana --scope read
  skulkctl token create webshop --scope infer --rate 600/min --concurrency 8 --expires 90d
  skulkctl token create ci --scope operate -q > ci.token
"""


def _lifetime(typed: str) -> float:
    """Seconds. Raises ValueError."""
    from skulkctl.output.units import parse_duration
    from skulkd.wire.tokens import MAX_EXPIRES_S

    seconds = parse_duration(typed)
    if seconds > MAX_EXPIRES_S:
        raise ValueError(
            f"{typed} is more than ten years; omit --expires for a token that does not expire"
        )
    return seconds


@verb(app, "create", Reach, Output, Confirmation, examples=CREATE_EXAMPLES)
def create(
    call: Invocation,
    new_name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the token, shown in the list and the audit log.",
            show_default=False,
        ),
    ],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="SCOPE",
            autocompletion=values.scopes,
            help="Grant read, infer or operate (repeatable, or comma-separated).",
            show_default=False,
        ),
    ],
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N/UNIT", help="Limit the rate (e.g. 10/s, 60/min, 500/h)."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", min=1, help="Limit concurrent requests."),
    ] = None,
    expires_s: Annotated[
        float | None,
        typer.Option(
            "--expires",
            metavar="TIME",
            parser=_lifetime,
            help="Expire the token after this time (e.g. 90d).",
        ),
    ] = None,
) -> int:
    """Create an access token and print it. It cannot be shown again.

    Scopes: read views the cluster; infer allows chat, completions, listing models, and cancelling
    its own requests; operate allows everything, including managing tokens. Limits apply per node.
    Store the token in a file with mode 600. With -q, print only the token.
    """
    from skulkctl.cli.confirm import protect
    from skulkctl.tokens.rows import token_page

    wanted = _request(new_name, scope, rate, concurrency, expires_s)
    if call.dry_run:
        scopes = ", ".join(wanted.scopes)
        call.messages.note(f"would create token {new_name} with the scopes {scopes}")
        return ExitCode.DONE
    protect(call, f"create token {new_name}")
    made = call.daemon.create_token(wanted)
    document = made.model_dump(mode="json")
    write(call.style.single("Token", document, made.token, lambda _: token_page(made)))
    call.messages.hint(
        "it is not shown again; use it:  skulkctl context set NAME --token-file FILE"
    )
    return ExitCode.DONE


def _request(
    name: str, scope: list[str], rate: str | None, concurrency: int | None, expires_s: float | None
) -> CreateTokenRequest:
    """Raises UsageMistake."""
    from skulkd.wire.tokens import CreateTokenRequest, check_token_name, parse_rate

    scopes = _scopes(scope)
    _checked("NAME", check_token_name, name)
    if rate is not None:
        _checked("--rate", parse_rate, rate)
    return CreateTokenRequest(
        name=name,
        scopes=scopes,
        rate=rate,
        concurrency=concurrency,
        expires_in_s=expires_s,
    )


def _checked(option: str, check: Callable[[str], T], typed: str) -> T:
    try:
        return check(typed)
    except ValueError as error:
        raise UsageMistake(f"{option}: {error}") from None


def _scopes(typed: list[str]) -> list[Scope]:
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
    app, "list", Reach, Output, Table,
    examples="  skulkctl token list\n  skulkctl token ls -o json\n",
)  # fmt: skip
def list_(call: Invocation) -> int:
    """List the access tokens of the cluster, without their secret values.

    LAST USED is collected from every node and is reset when daemons restart. Exit 8 if a node did
    not respond.
    """
    from skulkctl.tokens.rows import TOKENS, token_rows

    answer = call.daemon.tokens()
    call.show_rows(TOKENS, token_rows(answer.tokens, datetime.now(UTC)))
    if answer.unreachable_nodes:
        silent = ", ".join(answer.unreachable_nodes)
        raise PartialAnswer(f"the last use on {silent} is unknown")
    return ExitCode.DONE


@verb(
    app, "revoke", Reach, Output, Confirmation,
    examples="  skulkctl token revoke webshop\n  skulkctl token revoke ci --yes\n",
)  # fmt: skip
def revoke(
    call: Invocation,
    token: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN",
            autocompletion=values.tokens,
            help="Name or id of the token.",
            show_default=False,
        ),
    ],
) -> int:
    """Revoke an access token on every node and end its open requests. Asks for confirmation."""
    from skulkctl.cli.confirm import Danger, protect
    from skulkctl.tokens.rows import ago, find_token

    tokens = call.daemon.tokens().tokens
    found = find_token(tokens, token)
    if found is None:
        names = ", ".join(listed.name for listed in tokens) or "none"
        raise NotFound(f"no token named {token}", f"tokens: {names}", hints=["skulkctl token list"])
    what = f"revoke token {found.name}"
    used = ago(found.last_used, datetime.now(UTC))
    why = f"scopes {','.join(found.scopes)}, last used {used}"
    if call.dry_run:
        call.messages.note(f"would {what}: {why}")
        return ExitCode.DONE
    protect(call, what, Danger(what, why=(why,)))
    revoked = call.daemon.revoke_token(found.token_id)
    document, line = revoked.model_dump(mode="json"), f"revoked {revoked.name}\n"
    write(call.style.single("RevokedToken", document, token, lambda _: line))
    return ExitCode.DONE
