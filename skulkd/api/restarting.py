"""`POST /v1/instances/{instance_id}/restart`: an operator wants new runners for an instance.

For what was given up after crashes or for lack of memory, once the cause is gone, and for what
hangs. The instance stays where it is. Requests that run on it end with the reason.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from skulkd.api.errors import ApiError, ok
from skulkd.api.instances import NOT_FOUND
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.wire.base import SnakeModel
from skulkd.wire.ids import InstanceId
from skulkd.wire.instances import Instance
from skulkd.wire.placement import RestartInstanceResponse
from skulkd.worker.group_addresses import nodes_by_rank
from skulkd.worker.refusals import NoSuchInstance

routes = RouteTable("instances")
DEADLINE_S = 9.0


class RestartOrder(SnakeModel):
    """The question to each node of the instance."""

    instance_id: InstanceId


@routes.post(
    "/v1/instances/{instance_id}/restart",
    scope="operate",
    summary="Start the runners of a placed model anew, where they are",
    answer=RestartInstanceResponse,
    errors=(404, 502),
)
async def post_instance_restart(request: web.Request) -> web.Response:
    node = services(request)
    instance_id = InstanceId(request.match_info["instance_id"])
    instance = node.replica.state.instances.get(instance_id)
    if instance is None:
        raise ApiError(404, NOT_FOUND)
    before = _statuses(node, instance)
    order = RestartOrder(instance_id=instance_id)
    nodes = nodes_by_rank(instance)
    # Rank 0 first: it leads, and the others would go back to what it said last.
    for node_id in nodes:
        await RESTART_RUNNERS.ask(node, node_id, order)
    await _changed(node, instance, before)
    answer = RestartInstanceResponse(message="Restarting.", instance_id=instance_id, node_ids=nodes)
    return ok(answer.model_dump_json().encode())


async def _changed(node: Services, instance: Instance, before: list[object]) -> None:
    """Until the state shows it, so that whoever waits does not take the old end for a new one."""
    ends = asyncio.get_running_loop().time() + DEADLINE_S
    while True:
        change = node.journal.next_change
        now = _statuses(node, instance)
        left = ends - asyncio.get_running_loop().time()
        if left <= 0 or all(one != other for one, other in zip(now, before, strict=True)):
            return
        try:
            async with asyncio.timeout(left):
                await change.wait()
        except TimeoutError:
            return


def _statuses(node: Services, instance: Instance) -> list[object]:
    """Of the ranks that have said something."""
    runners = node.replica.state.runners
    return [runners.get(runner) for runner in instance.shard_assignments.runner_to_shard]


async def _restart_runners(node: Services, order: RestartOrder) -> bytes:
    try:
        node.worker.restart(order.instance_id)
    except NoSuchInstance as error:
        raise ApiError(404, f"{node.identity.name}: {error}") from error
    return b"{}"


RESTART_RUNNERS = NodeCall(
    "instance.restart", _restart_runners, RestartOrder, deadline_s=DEADLINE_S
)
