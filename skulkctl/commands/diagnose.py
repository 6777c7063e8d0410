"""`skulkctl diagnose`: the diagnostics of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import NotFound, PartialAnswer, RouteMissing, ServerFailed
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkd.wire.diagnostics import NodeDiagnostics

app = new_app()

EXAMPLES = """
  skulkctl diagnose
  skulkctl diagnose kite2
  skulkctl diagnose kite2 -o json | jq '.supervisorRunners[] | {modelId, phase}'
"""


@verb(app, "diagnose", Reach, Output, examples=EXAMPLES)
def diagnose(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE",
            autocompletion=values.nodes,
            help="Name, id, or a prefix of either (default: the node that skulkctl connects to).",
        ),
    ] = None,
) -> int:
    """Show the diagnostics of one node: runtime, resources, processes, runners, warnings.

    Without NODE, show the node that skulkctl connects to. Exit 8 if the node does not respond.
    """
    from skulkctl.diagnostics.page import diagnostics_page, node_title

    found = call.daemon.node_diagnostics() if node is None else _of_node(call, node)
    style = call.style
    page = style.single(
        "NodeDiagnostics",
        found.model_dump(mode="json", exclude_unset=True),
        node_title(found),
        lambda wide: diagnostics_page(found, wide, style.colour, style.room),
    )
    write(page)
    return ExitCode.DONE


def _of_node(call: Invocation, typed: str) -> NodeDiagnostics:
    from skulkctl.nodes.rows import find_node, node_items

    item = find_node(node_items(call.daemon.state()), typed)
    try:
        return call.daemon.node_diagnostics(item["id"])
    except RouteMissing:
        raise
    except (NotFound, ServerFailed) as error:
        raise PartialAnswer(
            f"{item['name']} did not respond",
            *error.why,
            hints=["skulkctl nodes"],
            details=error.details,
        ) from error
