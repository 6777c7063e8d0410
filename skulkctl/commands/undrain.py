"""`skulkctl undrain`: let nodes accept new work again."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, Table, new_app, values, verb
from skulkctl.exits import ExitCode

app = new_app()

EXAMPLES = """
  skulkctl undrain kite2
  skulkctl undrain --all
"""


@verb(app, "undrain", Reach, Output, Table, Confirmation, examples=EXAMPLES)
def undrain(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE",
            autocompletion=values.nodes,
            help="Node name, id, or an id prefix of 4 or more characters.",
        ),
    ] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="Undrain every node.")] = False,
) -> int:
    """Return a drained node to rotation."""
    from skulkctl.cli.confirm import protect
    from skulkctl.nodes.draining import change, choose_nodes

    nodes = choose_nodes(call, node, all_nodes)
    names = ", ".join(item["name"] for item in nodes)
    if call.dry_run:
        call.messages.note(f"would undrain {names}")
        return ExitCode.DONE
    protect(call, f"undrain {names}")
    change(call, nodes, draining=False)
    return ExitCode.DONE
