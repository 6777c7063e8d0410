"""`skulkctl drain`: take nodes out of rotation without breaking anything."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, TABLE, verb

app = new_app()

EXAMPLES = """
  skulkctl drain kite2
  skulkctl drain kite2 --wait --deadline 10m && skulkctl restart kite2
  skulkctl drain --all --yes
"""


@verb(app, "drain", REACH, FORMAT, TABLE, CONFIRM, examples=EXAMPLES)
def drain(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(metavar="NODE", help="Name, id, or 4 or more characters of the id."),
    ] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="Every node.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when nothing is left.")] = False,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="TIME", help="Longest wait; 10m if not given."),
    ] = None,
) -> int:
    """Take a node out of rotation: no new placements, no new requests, no new jobs.

    What runs is finished. Requests still go to its instances while the model is ready nowhere
    else. The node drains until undrain, also after a restart. With --wait, stderr tells what is
    waited for; when the deadline passes, what is left is listed and the exit code is 6.
    """
    from skulkctl.confirm import Danger, protect
    from skulkctl.nodes.draining import change, choose_nodes, read_deadline, say_done, wait_empty

    limit_s = read_deadline(deadline)
    nodes = choose_nodes(call, node, all_nodes)
    names = ", ".join(item["name"] for item in nodes)
    if call.options.get("dry_run"):
        call.talk.note(f"would drain {names}")
        return ExitCode.DONE
    why = ("no node will take new placements or jobs",)
    danger = Danger("drain every node", why=why) if all_nodes else None
    protect(call, f"drain {names}", danger)
    change(call, nodes, draining=True)
    if wait:
        wait_empty(call, nodes, limit_s)
        say_done(call, nodes)
    return ExitCode.DONE
