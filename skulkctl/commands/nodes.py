"""`skulkctl nodes`: one row per node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb

if TYPE_CHECKING:
    from skulkctl.client import Client
    from skulkctl.fetch import Roll, Snapshot

app = new_app()

EXAMPLES = """
  skulkctl nodes
  skulkctl nodes -o wide --sort -free
  skulkctl nodes --columns name,health,disk --no-headers
  skulkctl nodes --watch -o jsonl | jq 'select(.type == "left").object.name'
"""

NOTABLE = ("name", "role", "health", "error", "version", "session", "address")
"""What makes a row worth another line; ages and free memory change all the time."""


@verb(app, "nodes", REACH, FORMAT, TABLE, examples=EXAMPLES)
def nodes(
    call: Invocation,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on and print a line for every change.")
    ] = False,
) -> int:
    """List the nodes: role, health, free memory and disk, accelerator, address, last report.

    A node that does not answer stays in the list as NO ANSWER and the exit code is 8. The wide
    form adds version, age, clock skew and round trip, as the node that was asked measures them.
    """
    from skulkctl.views.nodes import NODES

    if watch:
        _watch(call)
    snapshot, roll = _ask(call, call.client)
    items = snapshot.nodes(roll)
    call.show_rows(NODES, items)
    for item in items:
        if item["error"]:
            call.talk.warning(f"{item['name']}: no answer: {item['error']}")
    return ExitCode.PARTIAL if roll.silent else ExitCode.DONE


def _watch(call: Invocation) -> None:
    from skulkctl.client import DEFAULT_TIMEOUT_S, Client
    from skulkctl.follow import watch_rows
    from skulkctl.views.nodes import NODES

    def load() -> list[dict[str, object]]:
        # A new client each time: another endpoint of the context may answer meanwhile.
        client = Client(call.target, call.timeout_s(DEFAULT_TIMEOUT_S), call.talk.detail)
        snapshot, roll = _ask(call, client)
        return snapshot.nodes(roll)

    watch_rows(call, NODES, load, NOTABLE)


def _ask(call: Invocation, client: Client) -> tuple[Snapshot, Roll]:
    from skulkctl.fetch import Roll, call_roll, fetch_master, fetch_members, fetch_state
    from skulkctl.views.nodes import node_ids

    snapshot = fetch_state(client)
    roll = fetch_members(client, call.talk)
    if roll is None and len(node_ids(snapshot.state)) > 1:
        roll = call_roll(client, snapshot.state, call.talk)
    return snapshot, roll or Roll(fetch_master(client, snapshot.state, call.talk))
