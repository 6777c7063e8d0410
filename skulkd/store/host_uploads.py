"""Uploads at the store server, passed on by a node of the cluster: `/uploads/{id}`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from skulkd.store.errors import BadManifestError, StoreError
from skulkd.store.uploads import Uploads

MAX_MANIFEST_BYTES = 32 << 20
_PIECE = 1 << 20


def add_upload_routes(app: web.Application, uploads: Uploads) -> None:
    """POST begins, or with `commit` ends an upload; PUT brings a part of a file."""

    async def post(request: web.Request) -> dict[str, Any]:
        model_id, replace = request.match_info["id"], request.query.get("replace") == "1"
        if request.query.get("commit") == "1":
            return {"size": await uploads.commit(model_id, replace=replace)}
        manifest = await _read(request)
        return {"received": await uploads.begin(model_id, manifest, replace=replace)}

    async def put(request: web.Request) -> dict[str, Any]:
        query = request.query
        try:
            offset = int(query.get("offset", "0"))
        except ValueError:
            raise BadManifestError("offset must be a number") from None
        model_id, path = request.match_info["id"], query.get("path", "")
        return {"received": await uploads.write(model_id, path, offset, _pieces(request))}

    async def delete(request: web.Request) -> dict[str, Any]:
        await uploads.abort(request.match_info["id"])
        return {}

    for method, handler in (("POST", post), ("PUT", put), ("DELETE", delete)):
        app.router.add_route(method, "/uploads/{id}", _answering(handler))


def _answering(
    handler: Callable[[web.Request], Awaitable[dict[str, Any]]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        try:
            return web.json_response(await handler(request))
        except StoreError as error:
            return web.json_response({"kind": error.kind, "message": error.message}, status=409)

    return answer


async def _read(request: web.Request) -> bytes:
    body = bytearray()
    async for piece in _pieces(request):
        body += piece
        if len(body) > MAX_MANIFEST_BYTES:
            raise BadManifestError("the upload's list of files is too large")
    return bytes(body)


def _pieces(request: web.Request) -> AsyncIterator[bytes]:
    return aiter(request.content.iter_chunked(_PIECE))
