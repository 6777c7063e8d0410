"""`skulkctl nodes`: one row per node."""

from __future__ import annotations

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb

app = new_app()

EXAMPLES = """
  skulkctl nodes
  skulkctl nodes -o wide --sort -free
  skulkctl nodes --columns name,health,disk --no-headers
  skulkctl nodes -q
"""


@verb(app, "nodes", REACH, FORMAT, TABLE, examples=EXAMPLES)
def nodes(call: Invocation) -> int:
    """List the nodes: role, health, free memory and disk, accelerator, address, last report.

    A node that does not answer stays in the list as NO ANSWER and the exit code is 8.
    """
    from skulkctl.fetch import Roll, call_roll, fetch_master, fetch_state
    from skulkctl.views.nodes import NODES, node_ids

    snapshot = fetch_state(call.client)
    if len(node_ids(snapshot.state)) > 1:
        roll = call_roll(call.client, snapshot.state, call.talk)
    else:
        roll = Roll(fetch_master(call.client, snapshot.state, call.talk), silent={})
    items = snapshot.nodes(roll.master_id, roll.silent)
    call.show_rows(NODES, items)
    for item in items:
        if item["error"]:
            call.talk.warning(f"{item['name']}: no answer: {item['error']}")
    return ExitCode.PARTIAL if roll.silent else ExitCode.DONE
