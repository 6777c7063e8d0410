"""The store server: serves the models of one directory to the nodes of the cluster.

Paths and shapes are the reference's; `/manifests/{id}`, `/listings/{id}`, `/cards/{id}`,
`/catalogue` and `/uploads/{id}` are ours. Blocking work runs in threads.
"""

import asyncio
import json
import logging
import os
import shutil
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from skulkd.store.cards.catalogue import card_of_model
from skulkd.store.errors import (
    BadManifestError,
    BadModelIdError,
    HubTimeoutError,
    StoreError,
    UnknownModelError,
)
from skulkd.store.host.checksums import ChecksumJobs, file_sizes, find_file, list_files
from skulkd.store.host.registry import Registry
from skulkd.store.host.uploads import Uploads
from skulkd.store.hub.downloads import HubDownloads
from skulkd.store.manifest import Manifest
from skulkd.store.security import may_use_store
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId
from skulkd.wire.storage import StoreDownload

MANIFEST_TIMEOUT_S = 5.0
# With checksums that take long, a node should learn soon how large the model is.
LARGE_BYTES = 256 << 20
LARGE_TIMEOUT_S = 0.5
RETRY_AFTER_S = 1
MAX_MANIFEST_BYTES = 32 << 20
_PIECE = 1 << 20

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _is_our_error(record: logging.LogRecord) -> bool:
    """Malformed HTTP gets a response and no traceback in the log."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


_server_log = logging.getLogger(f"{__name__}.requests")
_server_log.addFilter(_is_our_error)


@dataclass(slots=True)
class StoreServer:
    """The HTTP server of one store."""

    registry: Registry
    secret: str
    downloads: HubDownloads
    in_use_reason: Callable[[str], str | None] = lambda model_id: None
    """Why a model must not be deleted now."""
    tls: ssl.SSLContext | None = None
    on_deleted: Callable[[], None] = lambda: None
    uploads: Uploads | None = None
    secret_for_operators: bool = True
    describe: Callable[[str], Awaitable[ModelCard]] | None = None
    """Makes a card for a model of which there is only a config.json."""
    _checksums: ChecksumJobs = field(default_factory=ChecksumJobs)
    _runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. Raises OSError when it is taken, StoreError for a bad root."""
        await asyncio.to_thread(self._prepare_root)
        runner = web.AppRunner(
            self._app(),
            access_log=None,
            logger=_server_log,
            shutdown_timeout=0.5,
            auto_decompress=False,
        )
        await runner.setup()
        self._runner = runner
        site = web.TCPSite(runner, host, port, ssl_context=self.tls)
        await site.start()
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        self._checksums.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    def _prepare_root(self) -> None:
        self.registry.root.mkdir(parents=True, exist_ok=True)
        self.registry.entries()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._authenticate])
        app.router.add_get("/health", self._health)
        app.router.add_get("/registry", self._registry)
        app.router.add_get("/models", self._models)
        app.router.add_get("/catalogue", self._catalogue)
        app.router.add_get("/downloads", self._downloads)
        app.router.add_get("/cards/{id}", self._card)
        app.router.add_get("/manifests/{id}", self._manifest)
        app.router.add_get("/listings/{id}", self._listing)
        app.router.add_get("/models/{id}/files", self._files)
        app.router.add_post("/models/{id}/download", self._download)
        app.router.add_get("/models/{id}/download/status", self._download_status)
        app.router.add_delete("/models/{id}", self._delete)
        app.router.add_get("/models/{id}/{path:.+}", self._file)
        if self.uploads is not None:
            _add_upload_routes(app, self.uploads)
        return app

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        authorization = request.headers.get("Authorization")
        accepted = self.secret_for_operators
        if not may_use_store(authorization, self.secret, secret_for_operators=accepted):
            raise web.HTTPUnauthorized(text="401: the store requires authentication")
        try:
            return await handler(request)
        except UnknownModelError as error:
            raise web.HTTPNotFound(text=f"404: {error.message}") from error
        except HubTimeoutError as error:
            raise web.HTTPGatewayTimeout(text=f"504: {error.message}") from error
        except BadModelIdError as error:
            raise web.HTTPBadRequest(text=f"400: {error.message}") from error
        except StoreError as error:
            raise web.HTTPInternalServerError(text=f"500: {error.message}") from error

    # --- the store ---

    async def _health(self, _request: web.Request) -> web.Response:
        root = self.registry.root
        try:
            usage = await asyncio.to_thread(shutil.disk_usage, root)
        except OSError as error:
            text = f"500: {root}: {error.strerror}"
            raise web.HTTPInternalServerError(text=text) from error
        document = {
            "store_path": str(root),
            "free_bytes": usage.free,
            "total_bytes": usage.total,
            "used_bytes": usage.used,
        }
        return web.json_response(document)

    async def _registry(self, _request: web.Request) -> web.Response:
        entries = await asyncio.to_thread(self.registry.entries)
        return web.json_response([entry.model_dump(mode="json") for entry in entries])

    async def _models(self, _request: web.Request) -> web.Response:
        entries = await asyncio.to_thread(self.registry.entries)
        return web.json_response([entry.model_id for entry in entries])

    async def _catalogue(self, _request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(self._cards))

    def _cards(self) -> list[dict[str, Any]]:
        """Every model that can be loaded, with its card and its size."""
        found = []
        for entry in self.registry.entries():
            card = self._card_of(entry.model_id)
            if card is not None:
                document = json.loads(card.model_dump_json())
                found.append({"card": document, "total_bytes": entry.total_bytes})
        return found

    def _card_of(self, model_id: str) -> ModelCard | None:
        local = self.registry.local(model_id)
        return None if local is None else card_of_model(local)

    async def _card(self, request: web.Request) -> web.Response:
        if self.describe is None:
            raise web.HTTPNotFound(text="404: this store makes no cards")
        card = await self.describe(request.match_info["id"])
        return web.Response(text=card.model_dump_json(), content_type="application/json")

    # --- files ---

    async def _files(self, request: web.Request) -> web.Response:
        directory = await self._directory(request.match_info["id"])
        return web.json_response(await asyncio.to_thread(list_files, directory))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        directory = await self._directory(request.match_info["id"])
        path = request.match_info["path"]
        if ".." in path.split("/"):
            raise web.HTTPBadRequest(text="400: Path traversal attempt rejected")
        file = await asyncio.to_thread(find_file, directory, path)
        if file is None:
            raise web.HTTPNotFound(text="404: no such file of this model")
        return _FileResponse(str(file))

    async def _listing(self, request: web.Request) -> web.Response:
        """The files with their sizes, so that a node can copy while checksums are computed."""
        model_id = request.match_info["id"]
        sizes = await asyncio.to_thread(file_sizes, await self._directory(model_id))
        files = [{"path": path, "size": size} for path, size in sizes.items()]
        return web.json_response({"model_id": model_id, "files": files})

    async def _manifest(self, request: web.Request) -> web.Response:
        """The manifest; 503 with the progress while checksums are computed."""
        model_id = request.match_info["id"]
        job = await self._checksums.start(model_id, await self._directory(model_id))
        timeout_s = LARGE_TIMEOUT_S if job.total_bytes >= LARGE_BYTES else MANIFEST_TIMEOUT_S
        done, _ = await asyncio.wait({job.task}, timeout=timeout_s)
        if not done:
            document = {"hashed_bytes": job.done_bytes, "total_bytes": job.total_bytes}
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            return web.json_response(document, status=503, headers=headers)
        try:
            files = tuple(job.task.result())
        except OSError as error:
            raise web.HTTPInternalServerError(text=f"500: {error}") from error
        manifest = Manifest(model_id, files, await asyncio.to_thread(self._card_of, model_id))
        return web.Response(body=manifest.to_json(), content_type="application/json")

    # --- changes ---

    async def _download(self, request: web.Request) -> web.Response:
        model_id = ModelId(request.match_info["id"])
        if await asyncio.to_thread(self.registry.directory, model_id) is not None:
            state = StoreDownload(model_id=model_id, status="complete", progress=1.0)
        else:
            state = self.downloads.request(model_id, await _gguf_file(request))
        document = {"modelId": model_id, "status": state.status, "progress": state.progress}
        return web.json_response(document)

    async def _download_status(self, request: web.Request) -> web.Response:
        model_id = ModelId(request.match_info["id"])
        state = self.downloads.status(model_id)
        if state is None or state.status == "complete":
            await self._directory(model_id)
            state = StoreDownload(model_id=model_id, status="complete", progress=1.0)
        return web.Response(text=state.model_dump_json(), content_type="application/json")

    async def _downloads(self, _request: web.Request) -> web.Response:
        active = [json.loads(state.model_dump_json()) for state in self.downloads.active()]
        return web.json_response(active)

    async def _delete(self, request: web.Request) -> web.Response:
        model_id = request.match_info["id"]
        reason = self.in_use_reason(model_id)
        if reason is not None:
            raise web.HTTPConflict(text=f"409: {model_id} is in use: {reason}")
        await asyncio.to_thread(self.registry.remove, model_id)
        self._checksums.forget(model_id)
        self.downloads.forget(model_id)
        self.on_deleted()
        return web.json_response({"modelId": model_id, "deleted": True})

    async def _directory(self, model_id: str) -> Path:
        directory = await asyncio.to_thread(self.registry.directory, model_id)
        if directory is None:
            raise UnknownModelError(f"Model {model_id} not in store")
        return directory


async def _gguf_file(request: web.Request) -> str | None:
    """The `gguf_file` of the body; a body that is not JSON is ignored, as in the reference."""
    try:
        document = json.loads(await request.read() or b"{}")
    except ValueError:
        return None
    name = document.get("gguf_file") if isinstance(document, dict) else None
    return name if isinstance(name, str) else None


class _FileResponse(web.FileResponse):
    """A file of a model, always as plain bytes.

    aiohttp's own response ignores `If-Range` with an entity tag, on which a resuming client
    relies so as not to join two versions of a file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, headers={"Content-Type": "application/octet-stream"})
        self._file = path

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        dropped = {"Accept-Encoding"}  # a file x.gz beside x is another file, not x compressed
        condition = request.headers.get("If-Range", "")
        if condition.startswith(('"', "W/")) and condition != _entity_tag(self._file):
            dropped.add("Range")
        headers = CIMultiDict(
            (name, value) for name, value in request.headers.items() if name.title() not in dropped
        )
        return await super().prepare(request.clone(headers=headers))


def _entity_tag(path: str) -> str:
    """As aiohttp writes it."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - called for every range
    except OSError:
        return ""
    return f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'


def _add_upload_routes(app: web.Application, uploads: Uploads) -> None:
    """Uploads that another node passes on: POST begins or commits, PUT sends a part of a file."""

    async def post(request: web.Request) -> dict[str, Any]:
        model_id, replace = request.match_info["id"], request.query.get("replace") == "1"
        if request.query.get("commit") == "1":
            return {"size": await uploads.commit(model_id, replace=replace)}
        manifest = await _read_manifest(request)
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
        app.router.add_route(method, "/uploads/{id}", _upload_handler(handler))


def _upload_handler(handler: Callable[[web.Request], Awaitable[dict[str, Any]]]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return web.json_response(await handler(request))
        except StoreError as error:
            return web.json_response({"kind": error.kind, "message": error.message}, status=409)

    return handle


async def _read_manifest(request: web.Request) -> bytes:
    body = bytearray()
    async for piece in _pieces(request):
        body += piece
        if len(body) > MAX_MANIFEST_BYTES:
            raise BadManifestError("the upload's list of files is too large")
    return bytes(body)


def _pieces(request: web.Request) -> AsyncIterator[bytes]:
    return aiter(request.content.iter_chunked(_PIECE))
