"""`skulkctl instances`: one row per placed model."""

from __future__ import annotations

from skulkctl.cli import Invocation, Output, Reach, Table, new_app, verb
from skulkctl.exits import ExitCode

app = new_app()

EXAMPLES = """
  skulkctl instances
  skulkctl instances -o wide
  skulkctl instances -o json | jq '.items[] | select(.status != "ready")'
  skulkctl instances -q
"""


@verb(app, "instances", Reach, Output, Table, examples=EXAMPLES)
def instances(call: Invocation) -> int:
    """List the placed models: status, progress, nodes, sharding, context, requests.

    A model is waiting if its node is gone and it fits on no other node. UNLOADS is when a model
    that a request has loaded goes (models.on_demand); others stay until deleted. -o wide adds
    the layers, runner and status of each rank, and earlier placements.
    """
    from skulkctl.placement.instances import INSTANCES, instance_items, waiting_items
    from skulkctl.placement.moves import with_moves

    items = instance_items(call.daemon.state())
    placements = call.daemon.placements()
    call.show_rows(INSTANCES, [*with_moves(items, placements), *waiting_items(placements)])
    return ExitCode.DONE
