"""Calls about requests that models answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Call, Steps, ask, call, segment
from skulkctl.daemon.nodes import DIAGNOSTICS_PATH
from skulkctl.errors import CliError

if TYPE_CHECKING:
    from skulkd.wire.chat import CancelCommandResponse
    from skulkd.wire.diagnostics import RunnerTaskCancelResponse


def cancel(command_id: str) -> Call[CancelCommandResponse]:
    """Drop a request. Raises NotFound when the node that answers does not know it."""
    from skulkd.wire.chat import CancelCommandResponse

    return call("POST", f"/v1/cancel/{segment(command_id)}", CancelCommandResponse)


def cancel_on_runners(runners: Sequence[tuple[str, str]], task_id: str) -> Steps[list[str]]:
    """Have runners, given by the ids of node and runner, drop a task; what each answered.

    Raises the first refusal when none of them accepts it.
    """
    statuses: list[str] = []
    refused: list[CliError] = []
    for node_id, runner_id in runners:
        try:
            answer = yield from ask(_cancel_on_runner(node_id, runner_id, task_id))
        except CliError as error:
            refused.append(error)
        else:
            statuses.append(answer.status)
    if refused and not statuses:
        raise refused[0]
    return statuses


def _cancel_on_runner(node_id: str, runner_id: str, task_id: str) -> Call[RunnerTaskCancelResponse]:
    from skulkd.wire.diagnostics import RunnerTaskCancelRequest, RunnerTaskCancelResponse
    from skulkd.wire.ids import TaskId

    path = f"{DIAGNOSTICS_PATH}/{segment(node_id)}/runners/{segment(runner_id)}/cancel"
    wanted = RunnerTaskCancelRequest(task_id=TaskId(task_id))
    return call("POST", path, RunnerTaskCancelResponse, body=wanted)
