"""`skulkctl nodes`: one row per node, and giving up a node that was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import ListGroup, new_app
from skulkctl.errors import NotFound, Refused, RouteMissing
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, TABLE, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.daemon.client import Daemon
    from skulkctl.daemon.members import Members
    from skulkctl.nodes.rows import NodeItem
    from skulkctl.talk import Talk
    from skulkd.wire.cluster import LostNode

ABOUT = """List the nodes of the cluster, or stop listing one that was lost.

Without a command it is `skulkctl nodes list`, with the same options.
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


@verb(app, "list", REACH, FORMAT, TABLE, examples=EXAMPLES)
def nodes(
    call: Invocation,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on and print a line for every change.")
    ] = False,
) -> int:
    """List the nodes: role, health, free memory and disk, accelerator, address, last report.

    A node that does not answer stays in the list as NO ANSWER, one that left without notice as
    lost, and the exit code is 8. The wide form adds version, age, clock skew and round trip, as
    the node that was asked measures them.
    """
    from skulkctl.nodes.rows import LOST, NODES

    if watch:
        _watch(call)
    items, members = _fetch(call.daemon)
    tell_gaps(call.talk, members)
    call.show_rows(NODES, items)
    for item in items:
        if item["error"]:
            why = "" if item["health"] == LOST else "no answer: "
            call.talk.warning(f"{item['name']}: {why}{item['error']}")
    return ExitCode.PARTIAL if members.is_partial else ExitCode.DONE


@verb(app, "forget", REACH, FORMAT, CONFIRM, examples=FORGET_EXAMPLES)
def forget(
    call: Invocation,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Whole name of a lost node.", show_default=False)
    ],
) -> int:
    """Stop listing a node that was lost and will not come back.

    A member that left without notice stays listed as lost, and doctor and status --check fail,
    until it is back. A node that is in the cluster cannot be forgotten. One that was forgotten
    and comes back is a member again.
    """
    from skulkctl.confirm import Danger, protect
    from skulkctl.nodes.rows import lost_text

    node = _lost_node(call, name)
    what = f"forget {name}"
    if call.options.get("dry_run"):
        call.talk.note(f"would {what}: {lost_text(node)}")
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
            hints=["stop its daemon instead; a node that stops in order is not listed as lost"],
        )
    raise NotFound(f"no lost node named {name}", f"lost nodes: {lost}", hints=["skulkctl nodes"])


def _watch(call: Invocation) -> None:
    from skulkctl.follow import watch_rows
    from skulkctl.nodes.rows import NODES

    watch_rows(call, NODES, lambda: _fetch(call.daemon)[0], NOTABLE)


def _fetch(daemon: Daemon) -> tuple[list[NodeItem], Members]:
    from skulkctl.nodes.rows import node_items, with_lost

    state = daemon.state()
    members = daemon.members(state.node_ids)
    return with_lost(node_items(state, members), members.lost), members


def tell_gaps(talk: Talk, members: Members) -> None:
    """What the rows lack, and why."""
    for note in members.notes:
        talk.note(note)
    for problem in members.problems:
        talk.warning(problem)
