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
    from skulkctl.client import Client
    from skulkctl.fetch import Roll, Snapshot
    from skulkctl.views.read import Document

ABOUT = """List the nodes of the cluster, or stop listing one that was lost.

Without a command it is `skulkctl nodes list`, with the same options.
"""
FORGET_PATH = "/v1/cluster/forget"

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
    from skulkctl.views.nodes import LOST, NODES

    if watch:
        _watch(call)
    snapshot, roll = _ask(call, call.client)
    items = snapshot.nodes_and_lost(roll)
    call.show_rows(NODES, items)
    for item in items:
        if item["error"]:
            why = "" if item["health"] == LOST else "no answer: "
            call.talk.warning(f"{item['name']}: {why}{item['error']}")
    return ExitCode.PARTIAL if roll.silent or roll.lost else ExitCode.DONE


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
    from skulkctl.views.nodes import lost_text
    from skulkctl.views.read import mapping

    node = _lost_node(call, name)
    what = f"forget {name}"
    if call.options.get("dry_run"):
        call.talk.note(f"would {what}: {lost_text(node)}")
        return ExitCode.DONE
    protect(call, what, Danger(what, why=(lost_text(node),)))
    answer = call.client.change("POST", FORGET_PATH, {"name": name})
    write(call.style.single("Forgotten", mapping(answer), name, lambda _: f"forgot {name}\n"))
    return ExitCode.DONE


def _lost_node(call: Invocation, name: str) -> Document:
    """The lost node of this name. Raises NotFound, Refused for one that is in the cluster."""
    from skulkctl.fetch import MEMBERS_PATH, read_members
    from skulkctl.views.read import text

    view = call.client.get_optional(MEMBERS_PATH)
    if view is None:
        raise RouteMissing(f"this server has no {MEMBERS_PATH}", "it does not track lost nodes")
    roll = read_members(view)
    for node in roll.lost:
        if text(node, "name") == name:
            return node
    lost = ", ".join(text(node, "name") or "?" for node in roll.lost) or "none"
    if any(text(member, "name") == name for member in roll.members.values()):
        raise Refused(
            f"{name} is in the cluster, so it cannot be forgotten",
            f"lost nodes: {lost}",
            hints=["stop its daemon instead; a node that stops in order is not listed as lost"],
        )
    raise NotFound(f"no lost node named {name}", f"lost nodes: {lost}", hints=["skulkctl nodes"])


def _watch(call: Invocation) -> None:
    from skulkctl.client import DEFAULT_TIMEOUT_S, Client
    from skulkctl.follow import watch_rows
    from skulkctl.views.nodes import NODES

    def load() -> list[dict[str, object]]:
        # A new client each time: another endpoint of the context may answer meanwhile.
        client = Client(call.target, call.timeout_s(DEFAULT_TIMEOUT_S), call.talk.detail)
        snapshot, roll = _ask(call, client)
        return snapshot.nodes_and_lost(roll)

    watch_rows(call, NODES, load, NOTABLE)


def _ask(call: Invocation, client: Client) -> tuple[Snapshot, Roll]:
    from skulkctl.fetch import Roll, call_roll, fetch_master, fetch_members, fetch_state
    from skulkctl.views.nodes import node_ids

    snapshot = fetch_state(client)
    roll = fetch_members(client, call.talk)
    if roll is None and len(node_ids(snapshot.state)) > 1:
        roll = call_roll(client, snapshot.state, call.talk)
    return snapshot, roll or Roll(fetch_master(client, snapshot.state, call.talk))
