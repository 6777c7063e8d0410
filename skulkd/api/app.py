"""The aiohttp application: families of routes, the entry before them, the services behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from skulkd.api import (
    admin,
    bench,
    cancel,
    capture,
    cluster,
    completions,
    config,
    diagnostics,
    downloads,
    events,
    health,
    identity,
    instances,
    landing,
    load,
    logs,
    models,
    openai_chat,
    openai_embeddings,
    previews,
    reference,
    restarting,
    runner_cancel,
    state,
    storage,
    store,
    swarm,
    timeline,
    tokens,
    traces,
    tracing,
    uploads,
)
from skulkd.api.anthropic import routes as anthropic
from skulkd.api.bodies import parse_body, parse_query, read_body
from skulkd.api.errors import JSON_TYPE
from skulkd.api.gate import Bound, gated
from skulkd.api.middleware import make_entry
from skulkd.api.ollama import embed as ollama_embed
from skulkd.api.ollama import generate as ollama_generate
from skulkd.api.ollama import models as ollama_models
from skulkd.api.ollama import pull as ollama_pull
from skulkd.api.protocol import ENTRY, UNHEARD
from skulkd.api.reference import REFERENCE, Reference
from skulkd.api.responses import routes as responses
from skulkd.api.routes import Route, RouteTable
from skulkd.api.services import SERVICES, Services, services

# A literal path must come before a pattern that would swallow it.
FAMILIES: tuple[RouteTable, ...] = (
    identity.routes,
    landing.routes,
    state.routes,
    cluster.routes,
    tokens.routes,
    config.routes,
    previews.routes,
    instances.routes,
    restarting.routes,
    load.routes,
    swarm.routes,
    models.routes,
    uploads.routes,
    storage.routes,
    downloads.routes,
    store.routes,
    openai_chat.routes,
    completions.routes,
    openai_embeddings.routes,
    responses.routes,
    anthropic.routes,
    ollama_generate.routes,
    ollama_embed.routes,
    ollama_models.routes,
    ollama_pull.routes,
    bench.routes,
    cancel.routes,
    runner_cancel.routes,
    timeline.routes,
    capture.routes,
    logs.routes,
    tracing.routes,
    traces.routes,
    diagnostics.routes,
    events.routes,
    admin.routes,
    health.routes,
    reference.routes,
)


def all_routes(families: Iterable[RouteTable] = FAMILIES) -> tuple[Route, ...]:
    """Every route, in registration order."""
    return tuple(route for family in families for route in family)


def build_app(node: Services, families: Iterable[RouteTable] = FAMILIES) -> web.Application:
    """An application that answers for this node."""
    routes = all_routes(families)
    app = web.Application()
    app[SERVICES] = node
    app[REFERENCE] = Reference(routes, node.identity.version)
    literals: dict[tuple[str, str], Bound] = {}
    for route in routes:
        bound = gated(route, _bind(route), node.token_uses)
        for method, path in _addresses(route):
            app.router.add_route(method, path, bound, expect_handler=_leave_continue_to_reader)
            if "{" not in path:
                literals[method, path] = bound
    app[UNHEARD] = node.lifecycle.unheard
    public = frozenset(path for route in routes if route.open_to_all for path in route.paths)
    formats = {
        path: route.error_format
        for route in routes
        if route.error_format is not None
        for path in route.paths
    }
    app[ENTRY] = make_entry(node.access, node.lifecycle, node.metrics, literals, public, formats)
    return app


def _addresses(route: Route) -> Iterator[tuple[str, str]]:
    """Methods and paths under which a route is found."""
    for path in route.paths:
        yield route.method, path
        if route.head:
            yield "HEAD", path


def _bind(route: Route) -> Bound:
    """The handler, with its declared query and body validated first."""
    if route.query is None and route.body is None:
        return route.handler
    query_model = route.query
    body_adapter: TypeAdapter[Any] | None = None if route.body is None else TypeAdapter(route.body)

    async def bound(request: web.Request) -> web.StreamResponse:
        arguments: dict[str, Any] = {}
        if query_model is not None:
            arguments["query"] = parse_query(request.query, query_model)
        if body_adapter is not None:
            raw = await read_body(request, services(request).settings.max_body_bytes)
            kind = JSON_TYPE if route.any_content_type else request.content_type
            arguments["body"] = parse_body(raw, kind, body_adapter)
        return await route.handler(request, **arguments)

    return bound


async def _leave_continue_to_reader(_request: web.Request) -> None:
    return None
