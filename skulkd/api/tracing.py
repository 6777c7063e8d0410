"""`/v1/tracing`: the cluster-wide switch. It counts for new requests only."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from skulkd.api.errors import ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.wire.events import TracingStateChanged
from skulkd.wire.tracing import TracingStateResponse, UpdateTracingStateRequest

routes = RouteTable("tracing")
AGREE_S = 2.0


@routes.get("/v1/tracing", summary="Whether requests are traced", answer=TracingStateResponse)
async def get_tracing(request: web.Request) -> web.Response:
    return _tell(services(request))


@routes.put(
    "/v1/tracing",
    summary="Trace new requests in the whole cluster, or stop doing so",
    body=UpdateTracingStateRequest,
    answer=TracingStateResponse,
)
async def put_tracing(request: web.Request, body: UpdateTracingStateRequest) -> web.Response:
    node = services(request)
    if node.replica.state.tracing_enabled != body.enabled:
        journal = node.inference.journal
        journal.append(TracingStateChanged(enabled=body.enabled))
        ends = time.monotonic() + AGREE_S
        while (changed := journal.next_change) and _differs(node, body.enabled):
            try:
                await asyncio.wait_for(changed.wait(), ends - time.monotonic())
            except TimeoutError:
                break
    return _tell(node)


def _differs(node: Services, wanted: bool) -> bool:
    return node.replica.state.tracing_enabled != wanted


def _tell(node: Services) -> web.Response:
    """The state that the master has ordered, as far as this node knows."""
    answer = TracingStateResponse(enabled=node.replica.state.tracing_enabled)
    return ok(answer.model_dump_json().encode())
