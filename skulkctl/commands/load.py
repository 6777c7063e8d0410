"""`skulkctl load`: active work and free slots."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb

app = new_app()

EXAMPLES = """
  skulkctl load
  skulkctl load --all-nodes -o wide
  skulkctl load --all-nodes -o json | jq '.items[] | select(.state == "draining").name'
"""


@verb(app, "load", REACH, FORMAT, TABLE, examples=EXAMPLES)
def load(
    call: Invocation,
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", help="Every node, not only the one that is asked.")
    ] = False,
) -> int:
    """Show active work, queued work and free slots, of one node and of the cluster.

    A slot is room for one request on a model that is ready. The last row is the whole cluster.
    A node that does not answer stays in the list as NO ANSWER and the exit code is 8.
    """
    from skulkctl.nodes.load import LOAD, load_items

    answer = call.daemon.load()
    silent = [item for item in load_items(answer, all_nodes=True) if item.get("error")]
    call.show_rows(LOAD, load_items(answer, all_nodes=all_nodes))
    for item in silent:
        call.talk.warning(f"{item['name']}: no answer: {item['error']}")
    return ExitCode.PARTIAL if silent else ExitCode.DONE
