"""`/healthz` (the process answers) and `/readyz` (it can serve)."""

from __future__ import annotations

from typing import Literal

from aiohttp import web

from skulkd.api.errors import ApiError, ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.wire.base import SnakeModel

routes = RouteTable("health")


class HealthAnswer(SnakeModel):
    status: Literal["ok"] = "ok"


OK = HealthAnswer().model_dump_json().encode()


@routes.get(
    "/healthz",
    scope="anyone",
    summary="The process is alive; needs no token from anywhere",
    answer=HealthAnswer,
)
async def get_healthz(_request: web.Request) -> web.Response:
    return ok(OK)


@routes.get(
    "/readyz", scope="any", summary="The node can serve", answer=HealthAnswer, errors=(503,)
)
async def get_readyz(request: web.Request) -> web.Response:
    reasons = services(request).lifecycle.why_not_ready()
    if reasons:
        raise ApiError(503, "; ".join(reasons))
    return ok(OK)
