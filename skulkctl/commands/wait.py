"""`skulkctl wait`: wait until an instance is ready or deleted."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import NotFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem

app = new_app()

EXAMPLES = """
  skulkctl wait 7f3c2a10 --timeout 5m
  skulkctl wait SmolLM2 --for ready
  skulkctl wait 7f3c2a10 --for deleted
  skulkctl wait 7f3c2a10 --fail-on deleted      keep waiting while a runner is restarted
"""


class Wanted(StrEnum):
    """Values of `--for`."""

    READY = "ready"
    DELETED = "deleted"


def _ends(typed: str) -> frozenset[str]:
    from skulkctl.placement.waiting import parse_ends

    return parse_ends(typed)


@verb(app, "wait", Reach, Output, examples=EXAMPLES)
def wait(
    call: Invocation,
    instance: Annotated[
        str | None,
        typer.Argument(
            metavar="INSTANCE|MODEL",
            autocompletion=values.instances,
            help="Instance id, model, or a prefix of either (default: the only placed model).",
        ),
    ] = None,
    goal: Annotated[
        Wanted, typer.Option("--for", metavar="WHAT", help="Wait for ready (default) or deleted.")
    ] = Wanted.READY,
    fail_on: Annotated[
        frozenset[str] | None,
        typer.Option(
            "--fail-on",
            metavar="A,B",
            parser=_ends,
            autocompletion=lambda: ["failed", "deleted", "failed,deleted", "none"],
            help="Exit 1 on failed, deleted or none (default for ready: both).",
        ),
    ] = None,
) -> int:
    """Wait until an instance is ready or deleted.

    Progress goes to stderr. Exit 1 if a runner fails or the instance is deleted, exit 6 if
    --timeout (default: 10m) passes. An instance that does not exist counts as deleted, or with
    --for ready as not found (exit 3).
    """
    from skulkctl.placement.instances import instance_items
    from skulkctl.placement.placed import best_of, find_placed
    from skulkctl.placement.waiting import ENDS, Goal, wait_for

    # Without it, everything that makes the goal impossible.
    ends = frozenset(ENDS if goal is Wanted.READY else ()) if fail_on is None else fail_on
    try:
        several = find_placed(instance_items(call.daemon.state()), instance)
    except NotFound:
        if goal != "deleted":
            raise
        call.messages.note(f"{instance or 'nothing'} is not placed; there is nothing to wait for")
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
