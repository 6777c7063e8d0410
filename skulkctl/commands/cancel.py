"""`skulkctl cancel`: cancel one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import CliError, NotFound
from skulkctl.evidence import CaptureOption
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skulkctl.placement.requests import RequestItem

app = new_app()

EXAMPLES = """
  skulkctl cancel 29953048-c8a2-4a1b-a873-ff3577aaa410
  skulkctl cancel 2995                     the beginning of the id is enough
  skulkctl cancel 2995 --capture           write a bundle of its ranks first
  skulkctl diagnose -o json | jq -r '.supervisorRunners[].inProgressTasks[].taskId'
"""


@verb(app, "cancel", REACH, FORMAT, CONFIRM, examples=EXAMPLES)
def cancel(
    call: Invocation,
    task: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Command or task, or 4 or more characters of one that is open."
        ),
    ],
    capture: CaptureOption = None,
) -> int:
    """Cancel a request; its client sees the answer stop.

    The node that accepted the request is told first. When it does not know the request, the
    runners that work on the task are told directly. An instance that hangs is captured before,
    because a cancel hides where its ranks stood.
    """
    from skulkctl.confirm import protect
    from skulkctl.evidence import capture_first
    from skulkctl.placement.requests import find_request, request_items

    found = find_request(request_items(call.daemon.state()), task, call.talk.note)
    if call.options.get("dry_run"):
        _report(call, found or _unknown(task), "would cancel")
        return ExitCode.DONE
    # A request that is over in the state may still be known to the node that took it.
    command_id = found["commandId"] if found else task
    protect(call, f"cancel {command_id}")
    instance = found["instanceId"] if found else None
    bundle = capture_first(call, capture, instance=instance, request=command_id)
    if _cancel_command(call, command_id):
        _report(call, found or _unknown(task), "cancelled", bundle)
    elif found is None:
        raise NotFound(
            f"no request {task}",
            "the node that answers does not know it, and no open task has such an id",
            hints=["it may be over; those that are open:  skulkctl instances"],
        )
    else:
        _report(call, found, _cancel_on_runners(call, found), bundle)
    return ExitCode.DONE


def _unknown(typed: str) -> RequestItem:
    return {
        "taskId": None,
        "commandId": typed,
        "kind": None,
        "status": None,
        "modelId": None,
        "instanceId": None,
    }


def _cancel_command(call: Invocation, command_id: str) -> bool:
    """False when the node that answers does not know the command."""
    try:
        call.daemon.cancel(command_id)
    except NotFound:
        return False
    return True


def _cancel_on_runners(call: Invocation, found: RequestItem) -> str:
    """Tell every runner of the task's instance; what became of it, in words."""
    from skulkctl.placement.instances import instance_items

    said: list[str] = []
    refused: list[CliError] = []
    items = instance_items(call.daemon.state())
    mine = (item for item in items if item["id"] == found["instanceId"])
    for runner in (runner for item in mine for runner in item["runners"]):
        try:
            answer = call.daemon.cancel_on_runner(
                runner["nodeId"], runner["id"], found["taskId"] or ""
            )
        except CliError as error:
            refused.append(error)
        else:
            said.append(answer.status)
    return _outcome(found, said, refused)


def _outcome(found: RequestItem, said: Sequence[str], refused: Sequence[CliError]) -> str:
    if "cancel_requested" in said:
        return "cancelling"
    if said:
        return said[0].replace("_", " ")
    if refused:
        raise refused[0]
    raise NotFound(
        f"task {found['taskId']} has no runner",
        f"its instance {found['instanceId']} is gone",
        hints=["skulkctl instances"],
    )


def _report(call: Invocation, found: RequestItem, action: str, bundle: Path | None = None) -> None:
    document = {
        **found,
        "action": action,
        "dryRun": action == "would cancel",
        "capture": None if bundle is None else str(bundle),
    }
    name = found["taskId"] or found["commandId"]
    model = f" ({found['modelId']})" if found["modelId"] else ""
    line = f"{action} {name}{model}\n"
    write(call.style.single("Cancellation", document, name, lambda _: line))
