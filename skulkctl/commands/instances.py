"""`skulkctl instances`: one row per placed model."""

from __future__ import annotations

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb

app = new_app()

EXAMPLES = """
  skulkctl instances
  skulkctl instances -o wide
  skulkctl instances -o json | jq '.items[] | select(.status != "ready")'
  skulkctl instances -q
"""


@verb(app, "instances", REACH, FORMAT, TABLE, examples=EXAMPLES)
def instances(call: Invocation) -> int:
    """List the placed models: status, progress, nodes, sharding, context, requests.

    A model whose node is gone and that fits nowhere else is waiting. With -o wide also layers,
    runner and status of each rank, and where it was moved from.
    """
    from skulkctl.placement.instances import INSTANCES, instance_items, waiting_items
    from skulkctl.placement.moves import with_moves

    items = instance_items(call.daemon.state())
    placements = call.daemon.placements()
    call.show_rows(INSTANCES, [*with_moves(items, placements), *waiting_items(placements)])
    return ExitCode.DONE
