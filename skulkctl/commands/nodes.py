"""`skulkctl nodes`: one row per node, and forgetting a lost node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Confirmation, Invocation, ListGroup, Output, Reach, Table, new_app, verb
from skulkctl.errors import NotFound, Refused, RouteMissing
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.daemon.client import Daemon
    from skulkctl.daemon.members import Members
    from skulkctl.nodes.rows import NodeItem
    from skulkctl.output.messages import Messages
    from skulkd.wire.cluster import LostNode

ABOUT = """List the nodes of the cluster, or remove a lost node from the list.

Without a command, run `skulkctl nodes list` with the same options.
"""

app = new_app(ABOUT, ListGroup)

EXAMPLES = """
  skulkctl nodes
  skulkctl nodes -o wide --sort -free
  skulkctl nodes list --columns name,health,address
  skulkctl nodes --columns name,health,disk --no-headers
  skulkctl nodes --watch -o jsonl | jq 'select(.type == "left").object.name'
"""

NOTABLE = ("name", "role", "health", "error", "version", "session", "address")
"""What makes a row worth another line; ages and free memory change all the time."""


FORGET_EXAMPLES = """
  skulkctl nodes forget kite3
  skulkctl nodes forget kite3 --yes
  skulkctl nodes forget kite3 --dry-run
"""


@verb(app, "list", Reach, Output, Table, examples=EXAMPLES)
def nodes(
    call: Invocation,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and print a line for every change.")
    ] = False,
) -> int:
    """List the nodes: role, health, free memory and disk, accelerator, address, last report.

    A node that does not respond is listed as NO ANSWER, one that left without notice as lost, and
    the exit code is 8. -o wide adds version, age, clock skew and round-trip time, measured by
    the node that skulkctl connects to.
    """
    from skulkctl.nodes.rows import LOST, NODES

    if watch:
        _watch(call)
    items, members = _fetch(call.daemon)
    warn_of_gaps(call.messages, members)
    call.show_rows(NODES, items)
    for item in items:
        if item["error"]:
            why = "" if item["health"] == LOST else "no answer: "
            call.messages.warning(f"{item['name']}: {why}{item['error']}")
    return ExitCode.PARTIAL if members.is_partial else ExitCode.DONE


@verb(app, "forget", Reach, Output, Confirmation, examples=FORGET_EXAMPLES)
def forget(
    call: Invocation,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Full name of a lost node.", show_default=False)
    ],
) -> int:
    """Remove a lost node from the list.

    A node that left without notice is listed as lost, and doctor and status --check fail, until
    it comes back or is forgotten. A node that is in the cluster cannot be forgotten. A forgotten
    node that comes back joins the cluster as usual.
    """
    from skulkctl.cli.confirm import Danger, protect
    from skulkctl.nodes.rows import lost_text

    node = _lost_node(call, name)
    what = f"forget {name}"
    if call.dry_run:
        call.messages.note(f"would {what}: {lost_text(node)}")
        return ExitCode.DONE
    protect(call, what, Danger(what, why=(lost_text(node),)))
    answer = call.daemon.forget(name).model_dump(mode="json")
    write(call.style.single("Forgotten", answer, name, lambda _: f"forgot {name}\n"))
    return ExitCode.DONE


def _lost_node(call: Invocation, name: str) -> LostNode:
    """The lost node of this name. Raises NotFound, Refused for one that is in the cluster."""
    try:
        view = call.daemon.cluster()
    except RouteMissing as error:
        raise RouteMissing(
            "this server does not track lost nodes", error.what, details=error.details
        ) from error
    for node in view.lost:
        if node.name == name:
            return node
    lost = ", ".join(node.name for node in view.lost) or "none"
    if any(member.name == name for member in view.nodes):
        raise Refused(
            f"{name} is in the cluster, so it cannot be forgotten",
            f"lost nodes: {lost}",
            hints=["stop its daemon instead; a node that is shut down is not listed as lost"],
        )
    raise NotFound(f"no lost node named {name}", f"lost nodes: {lost}", hints=["skulkctl nodes"])


def _watch(call: Invocation) -> None:
    from skulkctl.nodes.rows import NODES
    from skulkctl.output.watching import watch_rows

    watch_rows(call, NODES, lambda: _fetch(call.daemon)[0], NOTABLE)


def _fetch(daemon: Daemon) -> tuple[list[NodeItem], Members]:
    from skulkctl.nodes.rows import node_items, with_lost

    state = daemon.state()
    members = daemon.members(state.node_ids)
    return with_lost(node_items(state, members), members.lost), members


def warn_of_gaps(messages: Messages, members: Members) -> None:
    """Warn about facts that could not be fetched."""
    for note in members.notes:
        messages.note(note)
    for problem in members.problems:
        messages.warning(problem)
