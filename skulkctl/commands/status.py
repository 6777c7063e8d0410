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
    from skulkctl.contexts import ONE_OFF_NAME
    from skulkctl.fetch import call_roll, fetch_members, fetch_state
    from skulkctl.views.instances import instance_items
    from skulkctl.views.status import status_document, status_screen

    client = call.client
    snapshot = fetch_state(client)
    roll = fetch_members(client, call.talk)
    if roll is None:
        roll = call_roll(client, snapshot.state, call.talk)
    name = call.target.context.name
    document = status_document(
        None if name == ONE_OFF_NAME else name,
        client.endpoint,
        snapshot.state,
        snapshot.nodes(roll),
        instance_items(snapshot.state),
        roll.session,
        roll.lost,
        roll.warnings(),
    )
    style = call.style
    name = str(document["context"] or client.endpoint)
    page = style.single(
        "Status", document, name, lambda _: status_screen(document, style.colour, style.room)
    )
    write(page)
    if not document["healthy"]:
        call.talk.hint("skulkctl doctor")
    if check:
        return ExitCode.DONE if document["healthy"] else ExitCode.PROBLEM
    return ExitCode.PARTIAL if roll.silent or roll.lost else ExitCode.DONE
