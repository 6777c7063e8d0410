"""`skulkctl drain`: take nodes out of rotation without interrupting active work."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.cli import (
    Confirmation,
    Invocation,
    Output,
    Reach,
    Table,
    duration,
    new_app,
    values,
    verb,
)
from skulkctl.exits import ExitCode

app = new_app()

EXAMPLES = """
  skulkctl drain kite2
  skulkctl drain kite2 --wait --deadline 10m && skulkctl restart kite2
  skulkctl drain --all --yes
"""


@verb(app, "drain", Reach, Output, Table, Confirmation, examples=EXAMPLES)
def drain(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE",
            autocompletion=values.nodes,
            help="Node name, id, or an id prefix of 4 or more characters.",
        ),
    ] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="Drain every node.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all active work has finished.")
    ] = False,
    deadline_s: Annotated[
        float,
        typer.Option(
            "--deadline",
            metavar="TIME",
            parser=duration,
            help="Stop waiting after this time (default: 10m).",
            show_default=False,
        ),
    ] = 600.0,
) -> int:
    """Take a node out of rotation: no new placements, no new requests, no new jobs.

    Active work is finished. The node still gets requests for models that are ready on no other
    node. It stays drained, also after a restart, until: skulkctl undrain NODE. With --wait,
    stderr shows the remaining work; when the deadline passes, it is listed and the exit code
    is 6.
    """
    from skulkctl.cli.confirm import Danger, protect
    from skulkctl.nodes.draining import change, choose_nodes, say_done, wait_empty

    nodes = choose_nodes(call, node, all_nodes)
    names = ", ".join(item["name"] for item in nodes)
    if call.dry_run:
        call.messages.note(f"would drain {names}")
        return ExitCode.DONE
    why = ("no node will accept new placements or jobs",)
    danger = Danger("drain every node", why=why) if all_nodes else None
    protect(call, f"drain {names}", danger)
    change(call, nodes, draining=True)
    if wait:
        wait_empty(call, nodes, deadline_s)
        say_done(call, nodes)
    return ExitCode.DONE
