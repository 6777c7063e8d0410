"""`skulkctl purge-staging`: delete staged copies that nobody uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import NotFound, Refused, RouteMissing
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkctl.views.read import Document

app = new_app()

PURGE_S = 90.0
EXAMPLES = """
  skulkctl purge-staging --dry-run
  skulkctl purge-staging --node kite2 --yes
  skulkctl purge-staging mlx-community/Qwen3-30B-A3B-4bit --yes
  skulkctl purge-staging --confirm default      every node, without a question
"""


@verb(app, "purge-staging", REACH, FORMAT, CONFIRM, examples=EXAMPLES)
def purge_staging(
    call: Invocation,
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="Only this model, as ORG/NAME; all if not given."),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NODE", help="Only this node; may be repeated."),
    ] = None,
) -> int:
    """Delete staged copies that nobody uses, and show what comes back on each node.

    The store keeps its originals, and a model that is placed, loaded or being staged stays, with
    its companions. Asks first: y/N, or the name of the context when everything on several nodes
    would go. Exit 4 when MODEL is in use everywhere, 8 when a node did not answer.
    """
    from skulkctl.confirm import Danger, protect
    from skulkctl.views.purge import gains, purge_rows, silent_nodes, users_of

    call.client.timeout_s = call.timeout_s(PURGE_S)
    body: dict[str, object] = {"modelId": model} if model else {}
    if node:
        body["nodes"] = _node_ids(call, node)
    planned = _ask(call, {**body, "dryRun": True}, model)
    rows = purge_rows(planned)
    wanted = gains(planned)
    if call.options.get("dry_run") or not wanted:
        _show(call, planned, rows)
        if model and not wanted and users_of(rows):
            what = f"{model} is in use and stays"
            raise Refused(what, *users_of(rows), hints=["skulkctl storage --all-nodes"])
        return _end(call, silent_nodes(planned))
    what = f"purge {model or 'all staged models that nobody uses'} on {_count(len(wanted))}"
    severe = model is None and len(wanted) > 1
    name = call.target.context.name if severe else None
    protect(call, what, Danger(what, name=name, why=wanted))
    done = _ask(call, body, model)
    _show(call, done, purge_rows(done))
    return _end(call, silent_nodes(done))


def _ask(call: Invocation, body: Document, model: str | None) -> object:
    try:
        return call.client.change("POST", "/v1/cluster/purge-staging", body)
    except RouteMissing as error:
        raise Refused(
            "this server cannot say what a purge would delete",
            "a stock node also deletes models that are in use, so skulkctl does not ask it to",
            hints=["if you mean it:  skulkctl api POST /store/purge-staging -d '{}'"],
            details=error.details,
        ) from error
    except NotFound as error:
        raise NotFound(
            f"cannot purge {model or 'staging'}",
            *error.why,
            hints=["skulkctl storage --all-nodes"],
            details=error.details,
        ) from error


def _node_ids(call: Invocation, typed: Sequence[str]) -> list[str]:
    from skulkctl.fetch import fetch_state
    from skulkctl.views.nodes import find_node

    known = fetch_state(call.client).nodes()
    return [str(find_node(known, name, call.talk.note)["id"]) for name in typed]


def _show(call: Invocation, answer: object, rows: Sequence[Document]) -> None:
    from skulkctl.views.purge import AFTER, PURGE, node_rows
    from skulkctl.views.read import flag

    call.show_rows(PURGE, rows)
    if call.format in ("table", "wide") and rows and not flag(answer, "dryRun"):
        write("\n" + call.style.rows(AFTER, node_rows(answer)))


def _end(call: Invocation, silent: Sequence[Document]) -> int:
    from skulkctl.views.read import sequence

    for row in silent:
        call.talk.warning(f"{row['node']}: no answer: {next(iter(sequence(row, 'reasons')), '')}")
    return ExitCode.PARTIAL if silent else ExitCode.DONE


def _count(nodes: int) -> str:
    return f"{nodes} node{'' if nodes == 1 else 's'}"
