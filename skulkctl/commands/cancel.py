"""`skulkctl cancel`: cancel one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.capture.before_changes import CaptureOption
from skulkctl.cli import Confirmation, Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import NotFound
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from pathlib import Path

    from skulkctl.placement.requests import RequestItem

app = new_app()

EXAMPLES = """
  skulkctl cancel 29953048-c8a2-4a1b-a873-ff3577aaa410
  skulkctl cancel 2995                     a prefix of the id is enough
  skulkctl cancel 2995 --capture           write a capture bundle first
  skulkctl diagnose -o json | jq -r '.supervisorRunners[].inProgressTasks[].taskId'
"""


@verb(app, "cancel", Reach, Output, Confirmation, examples=EXAMPLES)
def cancel(
    call: Invocation,
    task: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            autocompletion=values.tasks,
            help="Command id or task id of an open request, or a prefix of 4 or more characters.",
        ),
    ],
    capture: CaptureOption = None,
) -> int:
    """Cancel a request and end the response to its client.

    The cancellation goes to the node that accepted the request. If that node does not know the
    request, it goes directly to the runners of the task. A hanging instance is captured first,
    because cancelling changes the state of its ranks.
    """
    from skulkctl.capture.before_changes import capture_first
    from skulkctl.cli.confirm import protect
    from skulkctl.placement.requests import find_request, request_items

    found = find_request(request_items(call.daemon.state()), task, call.messages.note)
    if call.dry_run:
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
            "no open request or task has this id",
            hints=["it may have finished; instances with open requests:  skulkctl instances"],
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
    """Cancel on every runner of the task's instance; returns the result as text."""
    from skulkctl.placement.instances import instance_items

    items = instance_items(call.daemon.state())
    mine = (item for item in items if item["id"] == found["instanceId"])
    runners = [(runner["nodeId"], runner["id"]) for item in mine for runner in item["runners"]]
    statuses = call.daemon.cancel_on_runners(runners, found["taskId"] or "")
    if "cancel_requested" in statuses:
        return "cancelling"
    if statuses:
        return statuses[0].replace("_", " ")
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
