"""`skulkctl delete`: unload a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.capture.before_changes import CaptureOption
from skulkctl.cli import Confirmation, Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import NotFound, RouteMissing
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem

app = new_app()

EXAMPLES = """
  skulkctl delete 7f3c2a10
  skulkctl delete skulk/SmolLM2-135M-Instruct --yes --wait
  skulkctl delete 7f3c2a10 --dry-run
"""


@verb(app, "delete", Reach, Output, Confirmation, examples=EXAMPLES)
def delete(
    call: Invocation,
    instance: Annotated[
        str,
        typer.Argument(
            metavar="INSTANCE",
            autocompletion=values.instances,
            help="Instance id, a prefix of 4 or more characters, or its model if placed only once.",
        ),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the instance is gone.")] = False,
    capture: CaptureOption = None,
) -> int:
    """Unload a model: cancel its requests and keep its files.

    Asks for confirmation. With --wait, --timeout limits the wait (default: 10m). A hanging
    instance is captured before it is deleted.
    """
    from skulkctl.capture.before_changes import capture_first
    from skulkctl.cli.confirm import Danger, protect
    from skulkctl.placement.instances import (
        find_instance,
        instance_items,
        short_instance,
        waiting_items,
    )
    from skulkctl.placement.waiting import Goal, wait_for

    items = instance_items(call.daemon.state())
    waiting = waiting_items(call.daemon.placements())
    item = find_instance([*items, *waiting], instance, call.messages.note)
    cost = _consequences(item)
    if call.dry_run:
        _report(call, item, "would delete")
        for line in cost:
            call.messages.note(line)
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
    from skulkctl.output.tables import plain

    if item["status"] == "waiting":
        return ("it is not on any node and will not be placed again",)
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
            f"cannot {what}: it no longer exists", *error.why, details=error.details
        ) from error


def _report(call: Invocation, item: InstanceItem, action: str) -> None:
    from skulkctl.placement.plans import outcome, placed_line

    document, line = outcome(action, item), placed_line(item, action)
    write(call.style.single("Deletion", document, item["id"], lambda _: line))
