"""`POST /v1/cancel/{command_id}`: end a request that is being answered."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.errors import ApiError, ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.wire.chat import CancelCommandResponse
from skulkd.wire.ids import CommandId

routes = RouteTable("chat")


@routes.post(
    "/v1/cancel/{command_id}",
    summary="End a request that this node is answering",
    answer=CancelCommandResponse,
    errors=(404,),
)
async def post_cancel(request: web.Request) -> web.Response:
    command_id = request.match_info["command_id"]
    if not await services(request).inference.commands.cancel(command_id):
        raise ApiError(404, "Command not found or already completed")
    body = CancelCommandResponse(message="Command cancelled.", command_id=CommandId(command_id))
    return ok(body.model_dump_json().encode())
