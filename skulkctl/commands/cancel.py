"""`skulkctl cancel`: end one request that is being answered."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import CliError, NotFound, UsageMistake
from skulkctl.evidence import CaptureOption
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skulkctl.views.read import Document

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
    """End a request that is being answered; whoever asked sees the answer stop.

    The node that took the request is told first. When it does not know the request, the
    runners that work on the task are told directly. A placement that hangs is captured
    before, because a cancel hides where its ranks stood.
    """
    from skulkctl.confirm import protect
    from skulkctl.evidence import capture_first
    from skulkctl.fetch import fetch_state
    from skulkctl.views.tasks import find_task, task_items

    found = find_task(task_items(fetch_state(call.client).state), task, call.talk.note)
    if call.options.get("dry_run"):
        _report(call, found or _unknown(task), "would cancel")
        return ExitCode.DONE
    # A request that is over in the state may still be known to the node that took it.
    command_id = str(found["commandId"]) if found else task
    protect(call, f"cancel {command_id}")
    instance = str(found["instanceId"]) if found else None
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
        state = fetch_state(call.client).state
        _report(call, found, _cancel_on_runners(call, state, found), bundle)
    return ExitCode.DONE


def _unknown(typed: str) -> Document:
    return {"taskId": None, "commandId": typed, "modelId": None, "instanceId": None}


def _cancel_command(call: Invocation, command_id: str) -> bool:
    """False when the node that answers does not know the command."""
    from skulkctl.answers import is_missing_route, read_json
    from skulkctl.client import path_segment

    answer = call.client.send("POST", f"/v1/cancel/{path_segment(command_id)}")
    if answer.status == HTTPStatus.NOT_FOUND and not is_missing_route(answer):
        return False
    read_json(answer)
    return True


def _cancel_on_runners(call: Invocation, state: object, found: Document) -> str:
    """Tell every runner of the task's instance; what became of it, in words."""
    from skulkctl.client import path_segment
    from skulkctl.views.instances import instance_items
    from skulkctl.views.read import sequence, text

    said: list[str] = []
    refused: list[CliError] = []
    mine = (item for item in instance_items(state) if item["id"] == found["instanceId"])
    for runner in (runner for item in mine for runner in sequence(item, "runners")):
        node_id, runner_id = text(runner, "nodeId") or "", text(runner, "id") or ""
        path = f"/v1/diagnostics/cluster/{path_segment(node_id)}/runners/{path_segment(runner_id)}"
        try:
            answer = call.client.change("POST", f"{path}/cancel", {"taskId": found["taskId"]})
        except UsageMistake:
            raise
        except CliError as error:
            refused.append(error)
        else:
            said.append(text(answer, "status") or "cancel_requested")
    return _outcome(found, said, refused)


def _outcome(found: Document, said: Sequence[str], refused: Sequence[CliError]) -> str:
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


def _report(call: Invocation, found: Document, action: str, bundle: Path | None = None) -> None:
    document = {
        **found,
        "action": action,
        "dryRun": action == "would cancel",
        "capture": None if bundle is None else str(bundle),
    }
    name = str(found["taskId"] or found["commandId"])
    model = f" ({found['modelId']})" if found["modelId"] else ""
    line = f"{action} {name}{model}\n"
    write(call.style.single("Cancellation", document, name, lambda _: line))
