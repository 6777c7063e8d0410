"""Calls about requests that models answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Call, call, segment
from skulkctl.daemon.nodes import DIAGNOSTICS_PATH

if TYPE_CHECKING:
    from skulkd.wire.chat import CancelCommandResponse
    from skulkd.wire.diagnostics import RunnerTaskCancelResponse


def cancel(command_id: str) -> Call[CancelCommandResponse]:
    """Drop a request. Raises NotFound when the node that answers does not know it."""
    from skulkd.wire.chat import CancelCommandResponse

    return call("POST", f"/v1/cancel/{segment(command_id)}", CancelCommandResponse)


def cancel_on_runner(node_id: str, runner_id: str, task_id: str) -> Call[RunnerTaskCancelResponse]:
    """Have one runner drop a task."""
    from skulkd.wire.diagnostics import RunnerTaskCancelRequest, RunnerTaskCancelResponse
    from skulkd.wire.ids import TaskId

    path = f"{DIAGNOSTICS_PATH}/{segment(node_id)}/runners/{segment(runner_id)}/cancel"
    wanted = RunnerTaskCancelRequest(task_id=TaskId(task_id))
    return call("POST", path, RunnerTaskCancelResponse, body=wanted)
