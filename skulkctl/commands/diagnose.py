"""`skulkctl diagnose`: everything one node knows about itself."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import CliError, NotFound, PartialAnswer, RouteMissing, ServerFailed
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, verb
from skulkctl.stdout import write

app = new_app()

EXAMPLES = """
  skulkctl diagnose
  skulkctl diagnose kite2
  skulkctl diagnose kite2 -o json | jq '.supervisorRunners[] | {modelId, phase}'
"""


@verb(app, "diagnose", REACH, FORMAT, examples=EXAMPLES)
def diagnose(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE", help="Name, id, or a prefix of either; without it the one that answers."
        ),
    ] = None,
) -> int:
    """Show what one node knows about itself: runtime, resources, processes, runners, warnings.

    Without NODE it is the node that answers. Exit 8 when the node is known but silent.
    """
    from skulkctl.views.diagnostics import diagnostics_screen, node_title
    from skulkctl.views.read import mapping

    found = call.client.get("/v1/diagnostics/node") if node is None else _of_node(call, node)
    document = mapping(found)
    if not mapping(document, "runtime"):
        raise ServerFailed(f"{call.client.endpoint} gave no diagnostics")
    style = call.style
    page = style.single(
        "NodeDiagnostics",
        document,
        node_title(document),
        lambda wide: diagnostics_screen(document, wide, style.colour, style.room),
    )
    write(page)
    return ExitCode.DONE


def _of_node(call: Invocation, typed: str) -> object:
    from skulkctl.client import path_segment
    from skulkctl.nodes.rows import find_node, node_items

    item = find_node(node_items(call.daemon.state()), typed)
    try:
        return call.client.get(f"/v1/diagnostics/cluster/{path_segment(str(item['id']))}")
    except RouteMissing:
        raise
    except (NotFound, ServerFailed) as error:
        raise _silent(str(item["name"]), error) from error


def _silent(name: str, error: CliError) -> PartialAnswer:
    return PartialAnswer(
        f"{name} did not answer", *error.why, hints=["skulkctl nodes"], details=error.details
    )
