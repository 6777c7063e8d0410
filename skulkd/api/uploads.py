"""Models sent by an operator: `/v1/model-uploads`, into the shared store or onto this node.

Begin with the list of files, send each from the byte that is missing, then commit. Until then
nothing of the model can be placed or listed, and an interrupted upload can be taken up again.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import NoReturn

from aiohttp import web
from pydantic import Field

from skulkd.api.bodies import body_pieces
from skulkd.api.errors import ApiError, ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.store.errors import StoreError
from skulkd.wire.base import SnakeModel
from skulkd.wire.ids import ModelId
from skulkd.wire.uploads import (
    UploadedBytes,
    UploadedModel,
    UploadModel,
    UploadPlace,
    UploadRequest,
    UploadState,
)

routes = RouteTable("models")
_STATUS = {
    "bad_manifest": 400,
    "bad_model_id": 400,
    "broken_model": 400,
    "unknown_model": 404,
    "model_exists": 409,
    "busy": 409,
    "upload_offset": 409,
    "no_space": 507,
    "store_unreachable": 503,
}


class FileQuery(SnakeModel):
    model_id: ModelId
    path: str
    offset: int = Field(default=0, ge=0, description="Bytes of this file that are there already.")


class CommitQuery(SnakeModel):
    replace: bool = Field(default=False, description="Replace a model that has this id.")


class UploadQuery(SnakeModel):
    model_id: ModelId


@routes.get(
    "/v1/model-uploads", scope="read", summary="Where uploaded models go", answer=UploadPlace
)
async def get_place(request: web.Request) -> web.Response:
    node = services(request)
    target, models = node.store.uploads.target, node.settings.sources.paths.models
    here = target == "models"
    place = UploadPlace(
        node_id=node.identity.node_id,
        name=node.identity.name,
        target=target,
        directory=str(models) if here else None,
        directory_mark=await asyncio.to_thread(_mark, models) if here else None,
    )
    return ok(place.model_dump_json().encode())


@routes.post(
    "/v1/model-uploads",
    scope="operate",
    summary="Begin to upload a model, or take up an interrupted upload",
    body=UploadRequest,
    answer=UploadState,
    errors=(400, 409, 503, 507),
)
async def post_begin(request: web.Request, body: UploadRequest) -> web.Response:
    uploads = services(request).store.uploads
    # The names of a manifest between nodes are the same in both spellings.
    files = [file.model_dump() for file in body.files]
    manifest = json.dumps({"model_id": body.model_id, "files": files, "card": None}).encode()
    try:
        received = await uploads.begin(body.model_id, manifest, replace=body.replace)
    except StoreError as error:
        _refuse(error)
    return ok(UploadState(model_id=body.model_id, received=received).model_dump_json().encode())


@routes.put(
    "/v1/model-uploads/file",
    scope="operate",
    summary="Send a file, or the rest of one, as the body",
    query=FileQuery,
    answer=UploadedBytes,
    errors=(400, 404, 408, 409, 503, 507),
)
async def put_file(request: web.Request, query: FileQuery) -> web.Response:
    uploads = services(request).store.uploads
    pieces = body_pieces(request)
    try:
        received = await uploads.write(query.model_id, query.path, query.offset, pieces)
    except StoreError as error:
        _refuse(error)
    return ok(UploadedBytes(path=query.path, received_bytes=received).model_dump_json().encode())


@routes.post(
    "/v1/model-uploads/commit",
    scope="operate",
    summary="Register a model all of whose files have arrived",
    query=CommitQuery,
    body=UploadModel,
    answer=UploadedModel,
    errors=(400, 404, 409, 503),
)
async def post_commit(request: web.Request, query: CommitQuery, body: UploadModel) -> web.Response:
    uploads = services(request).store.uploads
    try:
        size_bytes = await uploads.commit(body.model_id, replace=query.replace)
    except StoreError as error:
        _refuse(error)
    done = UploadedModel(model_id=body.model_id, target=uploads.target, size_bytes=size_bytes)
    return ok(done.model_dump_json().encode())


@routes.delete(
    "/v1/model-uploads",
    scope="operate",
    summary="Cancel an upload and delete what has arrived",
    query=UploadQuery,
    answer=UploadModel,
    errors=(400, 404, 409, 503),
)
async def delete_upload(request: web.Request, query: UploadQuery) -> web.Response:
    try:
        await services(request).store.uploads.abort(query.model_id)
    except StoreError as error:
        _refuse(error)
    return ok(UploadModel(model_id=query.model_id).model_dump_json().encode())


def _refuse(error: StoreError) -> NoReturn:
    status = _STATUS.get(error.kind, 500)
    raise ApiError(status, error.message, refusal={"kind": error.kind}) from error


def _mark(directory: Path) -> str | None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = directory.stat()
    except OSError:
        return None
    return f"{found.st_dev}:{found.st_ino}:{found.st_ctime_ns}"
