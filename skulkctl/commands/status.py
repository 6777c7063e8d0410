"""`skulkctl status`: the cluster on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, new_app, verb
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

app = new_app()

EXAMPLES = """
  skulkctl status
  skulkctl status --check -q || echo "the cluster needs attention"
  skulkctl status -o json | jq '.instances[] | {modelId, ready}'
"""


@verb(app, "status", Reach, Output, examples=EXAMPLES)
def status(
    call: Invocation,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 7 if the cluster has a problem.")
    ] = False,
) -> int:
    """Show the cluster on one screen: nodes, master, memory, disk, instances, problems.

    Warnings, such as a nearly full disk, are listed but do not count as problems. A lost node is a
    problem until it comes back, or until: skulkctl nodes forget NAME. Exit 8 if a node does not
    respond. With --check, exit 0 if there is no problem, 7 if there is one, and 5 if no daemon
    responds. For checks that need more requests, run: skulkctl doctor.
    """
    from skulkctl.commands.nodes import warn_of_gaps
    from skulkctl.contexts import ONE_OFF_NAME
    from skulkctl.nodes.rows import node_items, with_lost
    from skulkctl.nodes.status_page import status_document, status_screen
    from skulkctl.placement.instances import instance_items

    state = call.daemon.state()
    members = call.daemon.members(state.node_ids)
    warn_of_gaps(call.messages, members)
    context = call.target.context.name
    nodes = node_items(state, members)
    document = status_document(
        None if context == ONE_OFF_NAME else context,
        call.daemon.endpoint,
        state,
        members,
        nodes,
        instance_items(state),
    )
    style, name = call.style, document["context"] or document["endpoint"]
    listed = with_lost(nodes, members.lost)

    def screen(_: bool) -> str:
        return status_screen(document, listed, style.colour, style.room)

    write(style.single("Status", document, name, screen))
    if not document["healthy"]:
        call.messages.hint("skulkctl doctor")
    if check:
        return ExitCode.DONE if document["healthy"] else ExitCode.PROBLEM
    return ExitCode.PARTIAL if members.is_partial else ExitCode.DONE
