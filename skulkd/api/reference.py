"""The API about itself: `/api/openapi.json`, `/api/docs`, and `/metrics`."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web
from pydantic_core import to_json

from skulkd.api import metrics
from skulkd.api.docs_page import render_docs
from skulkd.api.openapi import Schema, build_openapi
from skulkd.api.protocol import own_app
from skulkd.api.routes import Route, RouteTable
from skulkd.api.services import services
from skulkd.api.streams import send

routes = RouteTable("reference")
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Reference:
    """Document and page, made when first asked for and then kept."""

    def __init__(self, routes: Iterable[Route], version: str) -> None:
        self._routes = tuple(routes)
        self._version = version
        self._document: Schema | None = None
        self._json: bytes | None = None
        self._page: bytes | None = None

    def document(self) -> Schema:
        if self._document is None:
            self._document = build_openapi(self._routes, self._version)
        return self._document

    def as_json(self) -> bytes:
        if self._json is None:
            self._json = to_json(self.document())
        return self._json

    def page(self) -> bytes:
        if self._page is None:
            self._page = render_docs(self.document()).encode()
        return self._page


REFERENCE: web.AppKey[Reference] = web.AppKey("reference", Reference)


@routes.get(
    "/api/openapi.json", scope="any", summary="This API as OpenAPI 3.1", answer=dict[str, object]
)
async def get_openapi(request: web.Request) -> web.StreamResponse:
    return await send(request, own_app(request)[REFERENCE].as_json())


@routes.get(
    "/api/docs",
    scope="any",
    summary="This API as a page to read",
    answer=str,
    content_type="text/html",
)
async def get_docs(request: web.Request) -> web.StreamResponse:
    # No script and nothing from elsewhere: the page needs neither.
    policy = {"Content-Security-Policy": PAGE_POLICY}
    page = own_app(request)[REFERENCE].page()
    return await send(request, page, "text/html; charset=utf-8", headers=policy)


@routes.get(
    "/metrics",
    scope="read",
    summary="Figures for Prometheus",
    answer=str,
    content_type="text/plain",
)
async def get_metrics(request: web.Request) -> web.StreamResponse:
    return await send(request, services(request).metrics.render(), metrics.CONTENT_TYPE)
