"""`POST /admin/restart`: replace the process image in place."""

from __future__ import annotations

import logging

from aiohttp import web
from pydantic import Field

from skulkd.api.errors import ApiError, answer, ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.wire.admin import RestartAnswer
from skulkd.wire.base import SnakeModel

routes = RouteTable("admin")
log = logging.getLogger(__name__)


class RestartQuery(SnakeModel):
    node_id: str | None = Field(default=None, description="The node to restart; default: this one")


@routes.post(
    "/admin/restart",
    summary="Restart a node in place: same process id, new node id",
    query=RestartQuery,
    answer=RestartAnswer,
    errors=(404,),
    other_answers=((409, RestartAnswer),),
)
async def post_restart(request: web.Request, query: RestartQuery) -> web.Response:
    node = services(request)
    own = node.identity.node_id
    if query.node_id not in (None, "", own):
        raise ApiError(404, f"Node not found: {query.node_id[:200]}")
    if not node.lifecycle.ask_restart():
        pending = RestartAnswer(status="restart_already_pending", node_id=own)
        return answer(409, pending.model_dump_json().encode())
    log.info("restart asked for by %s", request.remote)
    node.lifecycle.ask_stop()
    return ok(RestartAnswer(status="restarting", node_id=own).model_dump_json().encode())
