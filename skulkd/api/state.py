"""`GET /state`: the whole cluster as this node sees it."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.api.streams import send
from skulkd.wire.state import State

routes = RouteTable("state")


@routes.get("/state", scope="read", summary="Replicated state, readings and health", answer=State)
async def get_state(request: web.Request) -> web.StreamResponse:
    return await send(request, services(request).state.as_bytes())
