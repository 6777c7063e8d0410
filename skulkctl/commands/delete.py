"""`skulkctl delete`: unload a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import NotFound, RouteMissing
from skulkctl.evidence import CaptureOption
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem

app = new_app()

EXAMPLES = """
  skulkctl delete 7f3c2a10
  skulkctl delete skulk/SmolLM2-135M-Instruct --yes --wait
  skulkctl delete 7f3c2a10 --dry-run
"""


@verb(app, "delete", REACH, FORMAT, CONFIRM, examples=EXAMPLES)
def delete(
    call: Invocation,
    instance: Annotated[
        str,
        typer.Argument(
            metavar="INSTANCE", help="Id, 4 or more characters of it, or its model if placed once."
        ),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Return when it is gone.")] = False,
    capture: CaptureOption = None,
) -> int:
    """Unload a model: its requests are cancelled, its files stay.

    Asks first. With --wait, --timeout limits the wait (default: 10m). An instance that hangs is
    captured before it is deleted.
    """
    from skulkctl.confirm import Danger, protect
    from skulkctl.evidence import capture_first
    from skulkctl.placement.instances import (
        find_instance,
        instance_items,
        short_instance,
        waiting_items,
    )
    from skulkctl.placement.waiting import Goal, wait_for

    items = instance_items(call.daemon.state())
    waiting = waiting_items(call.daemon.placements())
    item = find_instance([*items, *waiting], instance, call.talk.note)
    cost = _consequences(item)
    if call.options.get("dry_run"):
        _report(call, item, "would delete")
        for line in cost:
            call.talk.note(line)
        return ExitCode.DONE
    what = f"delete {item['modelId']} ({short_instance(item['id'])})"
    protect(call, what, Danger(what, why=cost))
    capture_first(call, capture, instance=item["id"])
    _ask_daemon(call, item, what)
    if wait:
        wait_for(call, Goal(item["id"], item["modelId"], "deleted", frozenset()))
        _report(call, item, "deleted")
    else:
        _report(call, item, "deleting")
    return ExitCode.DONE


def _consequences(item: InstanceItem) -> tuple[str, ...]:
    from skulkctl.tables import plain

    if item["status"] == "waiting":
        return ("it is on no node now and will not be placed again",)
    tasks = item["tasks"]
    where = f"its memory on {plain(item['nodes'])} is freed"
    if not tasks:
        return (where,)
    return (f"{tasks} request{'' if tasks == 1 else 's'} will be cancelled", where)


def _ask_daemon(call: Invocation, item: InstanceItem, what: str) -> None:
    try:
        call.daemon.delete(item["id"])
    except RouteMissing:
        raise
    except NotFound as error:
        raise NotFound(
            f"cannot {what}: it is already gone", *error.why, details=error.details
        ) from error


def _report(call: Invocation, item: InstanceItem, action: str) -> None:
    from skulkctl.placement.plans import outcome, placed_line

    document, line = outcome(action, item), placed_line(item, action)
    write(call.style.single("Deletion", document, item["id"], lambda _: line))
