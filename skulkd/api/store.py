"""The shared store, asked through any node: `/store/health`, `/registry`, `/downloads`, models."""

from __future__ import annotations

import logging

from aiohttp import web

from skulkd.api.errors import ApiError, ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.store.client.connection import StoreHttpError
from skulkd.store.client.store_client import StoreClient
from skulkd.store.errors import StoreError, StoreUnreachableError, UnknownModelError
from skulkd.wire.storage import (
    StoreDeleteAnswer,
    StoreDownloadAnswer,
    StoreDownloads,
    StoreHealth,
    StoreRegistry,
)

routes = RouteTable("store")
NOT_CONFIGURED = "Store not configured"
UNREACHABLE = "Store unreachable"
RETRY_AFTER_S = "5"

log = logging.getLogger(__name__)


@routes.get(
    "/store/health", scope="read", summary="Room in the store", answer=StoreHealth, errors=(503,)
)
async def get_health(request: web.Request) -> web.Response:
    client = _client(request)
    try:
        health = await client.health()
    except StoreError as error:
        log.info("store health: %s", error.message)
        raise ApiError(503, UNREACHABLE, refusal={"kind": StoreUnreachableError.kind}) from error
    return ok(health.model_dump_json().encode())


@routes.get(
    "/store/registry",
    scope="read",
    summary="Models in the store",
    answer=StoreRegistry,
    errors=(503,),
)
async def get_registry(request: web.Request) -> web.Response:
    client = _client(request)
    try:
        entries = await client.registry()
    except StoreError as error:
        log.info("store registry: %s", error.message)
        entries = []
    return ok(StoreRegistry(entries=entries).model_dump_json().encode())


@routes.get(
    "/store/downloads",
    scope="read",
    summary="What the store is fetching",
    answer=StoreDownloads,
    errors=(503,),
)
async def get_downloads(request: web.Request) -> web.Response:
    client = _client(request)
    try:
        downloads = await client.downloads()
    except StoreError as error:
        log.info("store downloads: %s", error.message)
        downloads = []
    return ok(StoreDownloads(downloads=downloads).model_dump_json().encode())


@routes.post(
    "/store/models/{model_id:.+}/download",
    scope="operate",
    summary="Have the store fetch a model; a failed fetch starts again",
    answer=StoreDownloadAnswer,
    errors=(503,),
)
async def post_download(request: web.Request) -> web.Response:
    client = _client(request)
    try:
        answer = await client.request_download(request.match_info["model_id"])
    except StoreError as error:
        answer = _trouble(error)
    return ok(answer.model_dump_json(exclude_unset=True).encode())


@routes.get(
    "/store/models/{model_id:.+}/download/status",
    scope="read",
    summary="How far the store is with a model",
    answer=StoreDownloadAnswer,
    errors=(503,),
)
async def get_download_status(request: web.Request) -> web.Response:
    client = _client(request)
    try:
        answer = await client.download_status(request.match_info["model_id"])
    except UnknownModelError:
        answer = StoreDownloadAnswer(status="not_found")
    except StoreError as error:
        answer = _trouble(error)
    return ok(answer.model_dump_json(exclude_unset=True).encode())


@routes.delete(
    "/store/models/{model_id:.+}",
    scope="operate",
    summary="Delete a model from the store",
    answer=StoreDeleteAnswer,
    errors=(404, 409, 503),
)
async def delete_model(request: web.Request) -> web.Response:
    client = _client(request)
    model_id = request.match_info["model_id"]
    try:
        answer = await client.delete(model_id)
    except UnknownModelError as error:
        raise ApiError(404, f"Model {model_id} not in store") from error
    except StoreUnreachableError as error:
        headers, kind = {"Retry-After": RETRY_AFTER_S}, {"kind": error.kind}
        raise ApiError(503, error.message, headers=headers, refusal=kind) from error
    except StoreHttpError as error:
        status = 409 if error.status == 409 else 502
        raise ApiError(status, error.body.partition(": ")[2] or error.message) from error
    except StoreError as error:
        raise ApiError(502, error.message) from error
    services(request).store.inventory.refresh_soon()
    return ok(answer.model_dump_json().encode())


def _client(request: web.Request) -> StoreClient:
    client = services(request).store.client
    if client is None:
        raise ApiError(503, NOT_CONFIGURED, refusal={"kind": "store_not_configured"})
    return client


def _trouble(error: StoreError) -> StoreDownloadAnswer:
    said = f"HTTP {error.status}" if isinstance(error, StoreHttpError) else error.message
    return StoreDownloadAnswer(status="error", error=said)
