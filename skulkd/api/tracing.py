"""`/v1/tracing`: the cluster-wide switch. It counts for new requests only."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.audit import note
from skulkd.api.errors import ok
from skulkd.api.placement_errors import placement_error
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.peers import PeerRefused
from skulkd.scheduling.placements import CommandRefused
from skulkd.wire.tracing import TracingStateResponse, UpdateTracingStateRequest

routes = RouteTable("tracing")


@routes.get(
    "/v1/tracing", scope="read", summary="Whether requests are traced", answer=TracingStateResponse
)
async def get_tracing(request: web.Request) -> web.Response:
    return _answer(services(request))


@routes.put(
    "/v1/tracing",
    scope="operate",
    summary="Trace new requests in the whole cluster, or stop doing so",
    body=UpdateTracingStateRequest,
    answer=TracingStateResponse,
    errors=(503, 507),
)
async def put_tracing(request: web.Request, body: UpdateTracingStateRequest) -> web.Response:
    node = services(request)
    note(enabled=body.enabled)
    try:
        await node.tracing.change(enabled=body.enabled)
    except PeerRefused as refused:
        raise placement_error(CommandRefused(refused)) from refused
    return _answer(node)


def _answer(node: Services) -> web.Response:
    answer = TracingStateResponse(enabled=node.tracing.enabled)
    return ok(answer.model_dump_json().encode())
