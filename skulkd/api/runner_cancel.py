"""`POST /v1/diagnostics/…/runners/{runner_id}/cancel`: an operator ends a task of a runner."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.errors import ApiError, ok
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.wire.base import SnakeModel
from skulkd.wire.diagnostics import (
    RunnerTaskCancelRequest,
    RunnerTaskCancelResponse,
    TaskCancelStatus,
)
from skulkd.wire.ids import RunnerId, TaskId
from skulkd.worker.refusals import NoSuchTask

routes = RouteTable("diagnostics")

_MESSAGES: dict[TaskCancelStatus, str] = {
    "cancel_requested": "the runner was asked to drop the task",
    "already_cancelled": "the task was cancelled before",
    "already_completed": "the task has ended already",
}


class RunnerTaskOrder(SnakeModel):
    """The question to the node of the runner."""

    runner_id: RunnerId
    task_id: TaskId


@routes.post(
    "/v1/diagnostics/node/runners/{runner_id}/cancel",
    scope="operate",
    summary="End a task of a runner on this node",
    body=RunnerTaskCancelRequest,
    answer=RunnerTaskCancelResponse,
    errors=(404,),
)
async def post_node_runner_cancel(
    request: web.Request, body: RunnerTaskCancelRequest
) -> web.Response:
    answer = _cancel(services(request), RunnerId(request.match_info["runner_id"]), body)
    return ok(answer.model_dump_json().encode())


@routes.post(
    "/v1/diagnostics/cluster/{node_id}/runners/{runner_id}/cancel",
    scope="operate",
    summary="End a task of a runner on the named node",
    body=RunnerTaskCancelRequest,
    answer=RunnerTaskCancelResponse,
    errors=(404, 502),
)
async def post_cluster_runner_cancel(
    request: web.Request, body: RunnerTaskCancelRequest
) -> web.Response:
    runner_id = RunnerId(request.match_info["runner_id"])
    order = RunnerTaskOrder(runner_id=runner_id, task_id=body.task_id)
    return ok(await CANCEL_TASK.forward(request, order))


def _cancel(
    node: Services, runner_id: RunnerId, body: RunnerTaskCancelRequest
) -> RunnerTaskCancelResponse:
    worker = node.worker
    records = worker.diagnostics()
    if all(record.runner_id != runner_id for record in records):
        raise ApiError(404, f"Runner not found: {runner_id[:200]}")
    elsewhere = {
        task.task_id
        for record in records
        if record.runner_id != runner_id
        for task in record.in_progress_tasks
    }
    unknown = ApiError(404, f"Task not found on runner {runner_id}: {body.task_id[:200]}")
    if body.task_id in elsewhere:
        raise unknown
    try:
        status = worker.cancel(body.task_id)
    except NoSuchTask:
        raise unknown from None
    return RunnerTaskCancelResponse(
        node_id=node.identity.node_id,
        runner_id=runner_id,
        task_id=body.task_id,
        status=status,
        message=_MESSAGES[status],
    )


async def _answer_cancel(node: Services, order: RunnerTaskOrder) -> RunnerTaskCancelResponse:
    return _cancel(node, order.runner_id, RunnerTaskCancelRequest(task_id=order.task_id))


CANCEL_TASK = NodeCall("runner.cancel", _answer_cancel, RunnerTaskOrder, deadline_s=9.0)
