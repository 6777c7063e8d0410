"""`skulkctl purge-staging`: delete staged copies that nothing uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import NotFound, Refused, RouteMissing
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkd.wire.storage import PurgeRequest, PurgeResult

app = new_app()

EXAMPLES = """
  skulkctl purge-staging --dry-run
  skulkctl purge-staging --node kite2 --yes
  skulkctl purge-staging mlx-community/Qwen3-30B-A3B-4bit --yes
  skulkctl purge-staging --confirm default      every node, without a prompt
"""


@verb(app, "purge-staging", Reach, Output, Confirmation, examples=EXAMPLES)
def purge_staging(
    call: Invocation,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            autocompletion=values.models,
            help="Purge only this model (ORG/NAME; default: all models).",
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            metavar="NODE",
            autocompletion=values.nodes,
            help="Purge only this node (repeatable).",
        ),
    ] = None,
) -> int:
    """Delete unused staged copies of models, and show the space freed on each node.

    Models in the store are kept, and so are staged copies that are placed, loaded or being staged,
    with their companion models. Asks for confirmation: y/N, or the name of the context if all
    models on several nodes would be purged. Exit 4 if MODEL is in use on every node, 8 if a node
    did not respond.
    """
    from skulkctl.cli.confirm import Danger, protect
    from skulkctl.storage.purge import gains, purge_items, users_of
    from skulkd.wire.storage import PurgeRequest

    body: dict[str, object] = {"modelId": model} if model else {}
    if node:
        body["nodes"] = _node_ids(call, node)
    planned = _ask(call, PurgeRequest.model_validate({**body, "dryRun": True}), model)
    items = purge_items(planned)
    wanted = gains(planned)
    if call.dry_run or not wanted:
        _show(call, planned)
        if model and not wanted and users_of(items):
            what = f"{model} is in use and was not purged"
            raise Refused(what, *users_of(items), hints=["skulkctl storage --all-nodes"])
        return _end(call, planned)
    what = f"purge {model or 'all unused staged models'} on {_count(len(wanted))}"
    severe = model is None and len(wanted) > 1
    name = call.target.context.name if severe else None
    protect(call, what, Danger(what, name=name, why=wanted))
    done = _ask(call, PurgeRequest.model_validate(body), model)
    _show(call, done)
    return _end(call, done)


def _ask(call: Invocation, wanted: PurgeRequest, model: str | None) -> PurgeResult:
    try:
        return call.daemon.purge(wanted)
    except RouteMissing as error:
        raise Refused(
            "this server cannot preview a purge",
            "it would also delete models that are in use, so skulkctl did not send the request",
            hints=["to purge anyway, run:  skulkctl api POST /store/purge-staging -d '{}'"],
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
    from skulkctl.nodes.rows import find_node, node_items

    known = node_items(call.daemon.state())
    return [find_node(known, name, call.messages.note)["id"] for name in typed]


def _show(call: Invocation, answer: PurgeResult) -> None:
    from skulkctl.storage.purge import AFTER, PURGE, node_items, purge_items

    items = purge_items(answer)
    call.show_rows(PURGE, items)
    if call.format in ("table", "wide") and items and not answer.dry_run:
        write("\n" + call.style.rows(AFTER, node_items(answer)))


def _end(call: Invocation, answer: PurgeResult) -> int:
    silent = [node for node in answer.nodes if not node.ok]
    for node in silent:
        why = node.error or "no reason given"
        call.messages.warning(f"{node.name or node.node_id}: no answer: {why}")
    return ExitCode.PARTIAL if silent else ExitCode.DONE


def _count(nodes: int) -> str:
    return f"{nodes} node{'' if nodes == 1 else 's'}"
