"""`skulkctl wait`: block until an instance is ready or gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import NotFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem

app = new_app()

EXAMPLES = """
  skulkctl wait 7f3c2a10 --timeout 5m
  skulkctl wait SmolLM2 --for ready
  skulkctl wait 7f3c2a10 --for deleted
  skulkctl wait 7f3c2a10 --fail-on deleted      goes on waiting while a runner is restarted
"""


@verb(app, "wait", REACH, FORMAT, examples=EXAMPLES)
def wait(
    call: Invocation,
    instance: Annotated[
        str | None,
        typer.Argument(
            metavar="INSTANCE|MODEL",
            help="Id or model, or the beginning of either; optional if one model is placed.",
        ),
    ] = None,
    goal: Annotated[str, typer.Option("--for", metavar="WHAT", help="ready or deleted.")] = "ready",
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="A,B",
            help="End with exit 1 at: failed, deleted or none. Default for ready: both.",
        ),
    ] = None,
) -> int:
    """Wait until an instance is ready, or gone.

    Progress goes to stderr. The wait ends early, with exit 1, when a runner fails or the
    instance is deleted; --timeout (10m if not given) ends it with exit 6. An instance that is
    not there counts as deleted, and for --for ready as not found.
    """
    from skulkctl.placement.instances import instance_items
    from skulkctl.placement.placed import best_of, find_placed
    from skulkctl.placement.waiting import GOALS, Goal, read_fail_on, wait_for

    if goal not in GOALS:
        raise UsageMistake(f"--for {goal}: choose one of {', '.join(GOALS)}")
    ends = read_fail_on(fail_on, goal)
    try:
        several = find_placed(instance_items(call.daemon.state()), instance)
    except NotFound:
        if goal != "deleted":
            raise
        call.talk.note(f"{instance or 'nothing'} is not placed; there is nothing to wait for")
        return ExitCode.DONE
    if goal == "deleted" and len(several) > 1:
        raise UsageMistake(
            f"{several[0]['modelId']} is placed {len(several)} times; give the id of one instance",
            *(item["id"] for item in several),
        )
    found = best_of(several)
    last = wait_for(call, Goal(found["id"], found["modelId"], goal, ends))
    _report(call, last or found, goal)
    return ExitCode.DONE


def _report(call: Invocation, item: InstanceItem, action: str) -> None:
    from skulkctl.placement.plans import outcome, placed_line

    document, line = outcome(action, item), placed_line(item, action)
    write(call.style.single("Wait", document, item["id"], lambda _: line))
