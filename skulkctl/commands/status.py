"""`skulkctl status`: the cluster on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, verb
from skulkctl.stdout import write

app = new_app()

EXAMPLES = """
  skulkctl status
  skulkctl status --check -q || echo "the cluster needs a look"
  skulkctl status -o json | jq '.instances[] | {modelId, ready}'
"""


@verb(app, "status", REACH, FORMAT, examples=EXAMPLES)
def status(
    call: Invocation,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 7 when the cluster has a problem.")
    ] = False,
) -> int:
    """Show the cluster on one screen: nodes, master, memory, disk, instances, problems.

    Warnings (a disk that gets full) are listed but are not problems. A node that left without
    notice is one until it is back, or until: skulkctl nodes forget NAME. Exit 8 when a node does
    not answer. With --check the exit code is 0 when all is well, 7 when there is a problem and 5
    when no daemon answers. The checks that need more questions are in doctor.
    """
    from skulkctl.commands.nodes import tell_gaps
    from skulkctl.contexts import ONE_OFF_NAME
    from skulkctl.nodes.rows import node_items
    from skulkctl.nodes.status_page import status_document, status_screen
    from skulkctl.placement.instances import instance_items

    state = call.daemon.state()
    members = call.daemon.members(state.node_ids)
    tell_gaps(call.talk, members)
    context = call.target.context.name
    document = status_document(
        None if context == ONE_OFF_NAME else context,
        call.daemon.endpoint,
        state,
        members,
        node_items(state, members),
        instance_items(state),
    )
    style, name = call.style, document["context"] or document["endpoint"]
    write(
        style.single(
            "Status", document, name, lambda _: status_screen(document, style.colour, style.room)
        )
    )
    if not document["healthy"]:
        call.talk.hint("skulkctl doctor")
    if check:
        return ExitCode.DONE if document["healthy"] else ExitCode.PROBLEM
    return ExitCode.PARTIAL if members.is_partial else ExitCode.DONE
