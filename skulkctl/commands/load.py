"""`skulkctl load`: active work and free slots."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, Table, new_app, verb
from skulkctl.exits import ExitCode

app = new_app()

EXAMPLES = """
  skulkctl load
  skulkctl load --all-nodes -o wide
  skulkctl load --all-nodes -o json | jq '.items[] | select(.state == "draining").name'
"""


@verb(app, "load", Reach, Output, Table, examples=EXAMPLES)
def load(
    call: Invocation,
    all_nodes: Annotated[
        bool,
        typer.Option(
            "--all-nodes", help="Show every node, not only the one that skulkctl connects to."
        ),
    ] = False,
) -> int:
    """Show active work, queued work and free slots, for one node and for the cluster.

    A slot is the capacity for one request on a ready model. The last row is the whole cluster.
    A node that does not respond is listed as NO ANSWER, and the exit code is 8.
    """
    from skulkctl.nodes.load import LOAD, load_items

    answer = call.daemon.load()
    silent = [item for item in load_items(answer, all_nodes=True) if item.get("error")]
    call.show_rows(LOAD, load_items(answer, all_nodes=all_nodes))
    for item in silent:
        call.messages.warning(f"{item['name']}: no answer: {item['error']}")
    return ExitCode.PARTIAL if silent else ExitCode.DONE
