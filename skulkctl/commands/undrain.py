"""`skulkctl undrain`: let nodes take new work again."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, TABLE, verb

app = new_app()

EXAMPLES = """
  skulkctl undrain kite2
  skulkctl undrain --all
"""


@verb(app, "undrain", REACH, FORMAT, TABLE, CONFIRM, examples=EXAMPLES)
def undrain(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(metavar="NODE", help="Name, id, or 4 or more characters of the id."),
    ] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="Every node.")] = False,
) -> int:
    """Bring a node back into rotation after drain."""
    from skulkctl.confirm import protect
    from skulkctl.nodes.draining import change, choose_nodes

    nodes = choose_nodes(call, node, all_nodes)
    names = ", ".join(item["name"] for item in nodes)
    if call.options.get("dry_run"):
        call.talk.note(f"would bring back {names}")
        return ExitCode.DONE
    protect(call, f"bring back {names}")
    change(call, nodes, draining=False)
    return ExitCode.DONE
