"""`POST /admin/restart`: replace the process image in place."""

from __future__ import annotations

import logging

from aiohttp import web
from pydantic import Field

from skulkd.api.audit import note
from skulkd.api.errors import answer
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.wire.admin import RestartAnswer
from skulkd.wire.base import SnakeModel
from skulkd.wire.ids import NodeId

routes = RouteTable("admin")
log = logging.getLogger(__name__)


class RestartQuery(SnakeModel):
    node_id: str | None = Field(default=None, description="The node to restart; default: this one")


@routes.post(
    "/admin/restart",
    scope="operate",
    summary="Restart a node in place: same process id, new node id",
    query=RestartQuery,
    answer=RestartAnswer,
    errors=(404, 502),
    other_answers=((409, RestartAnswer),),
)
async def post_restart(request: web.Request, query: RestartQuery) -> web.Response:
    node = services(request)
    note(node=query.node_id or node.identity.node_id)
    if query.node_id in (None, "", node.identity.node_id):
        said = _restart(node, str(request.remote))
    else:
        said = await _restart_other(node, NodeId(query.node_id))
    status = 409 if said.status == "restart_already_pending" else 200
    return answer(status, said.model_dump_json().encode())


def _restart(node: Services, asker: str) -> RestartAnswer:
    own = node.identity.node_id
    if not node.lifecycle.ask_restart():
        return RestartAnswer(status="restart_already_pending", node_id=own)
    log.info("restart asked for by %s", asker)
    node.lifecycle.ask_stop()
    return RestartAnswer(status="restarting", node_id=own)


async def _restart_other(node: Services, node_id: NodeId) -> RestartAnswer:
    unknown = f"Node not found: {node_id[:200]}"
    body = await RESTART.ask(node, node_id, unknown=unknown)
    said = RestartAnswer.model_validate_json(body)
    if said.status == "restarting":
        return RestartAnswer(status="restart_sent", node_id=node_id)
    return said


async def _answer_restart(node: Services) -> RestartAnswer:
    return _restart(node, "another node")


RESTART = NodeCall("node.restart", _answer_restart, deadline_s=5.0)
