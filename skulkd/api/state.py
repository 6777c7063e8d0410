"""`GET /state`: the whole cluster as this node sees it; 304 while nothing has changed."""

from __future__ import annotations

from aiohttp import hdrs, web

from skulkd.api.errors import SERVER
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.api.streams import send
from skulkd.wire.state import State

routes = RouteTable("state")


@routes.get("/state", scope="read", summary="Replicated state, readings and health", answer=State)
async def get_state(request: web.Request) -> web.StreamResponse:
    view = services(request).state
    body, headers = view.as_bytes(), {"ETag": view.etag}
    if request.headers.get(hdrs.IF_NONE_MATCH) == view.etag:
        return web.Response(status=304, headers={**headers, "Server": SERVER})
    return await send(request, body, headers=headers)
