"""`POST /v1/diagnostics/…/runners/{runner_id}/cancel`: an operator ends a task of a runner."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.errors import ApiError, ok
from skulkd.api.peer_calls import answer_peers, ask_node
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.wire.base import SnakeModel
from skulkd.wire.diagnostics import (
    RunnerTaskCancelRequest,
    RunnerTaskCancelResponse,
    TaskCancelStatus,
)
from skulkd.wire.ids import NodeId, RunnerId, TaskId
from skulkd.worker.refusals import NoSuchTask

routes = RouteTable("diagnostics")
METHOD = "runner.cancel"
DEADLINE_S = 9.0

_MESSAGES: dict[TaskCancelStatus, str] = {
    "cancel_requested": "the runner was asked to drop the task",
    "already_cancelled": "the task was cancelled before",
    "already_completed": "the task has ended already",
}


class Order(SnakeModel):
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
    asked = request.match_info["node_id"]
    order = Order(runner_id=RunnerId(request.match_info["runner_id"]), task_id=body.task_id)
    answer = await ask_node(
        services(request).peers,
        NodeId(asked),
        METHOD,
        order.model_dump_json().encode(),
        deadline_s=DEADLINE_S,
        unknown=f"Node not reachable: {asked[:200]}",
    )
    return ok(answer)


def serve_runner_cancel(node: Services) -> None:
    """Let other nodes end tasks of runners of this one."""

    async def answer(body: bytes) -> bytes:
        order = Order.model_validate_json(body)
        request = RunnerTaskCancelRequest(task_id=order.task_id)
        return _cancel(node, order.runner_id, request).model_dump_json().encode()

    answer_peers(node.peers, METHOD, answer)


def _cancel(
    node: Services, runner_id: RunnerId, body: RunnerTaskCancelRequest
) -> RunnerTaskCancelResponse:
    worker = node.inference.worker
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
