"""The store server: gives the models of one directory to the nodes of the cluster.

Paths and shapes are the reference's; `/manifests/{id}`, `/listings/{id}`, `/cards/{id}` and
`/catalogue` are ours, because its clients keep only what they know. Blocking looks at the disk run
in threads.
"""

import asyncio
import json
import logging
import shutil
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from skulkd.store.access import may_use_store
from skulkd.store.card_of_directory import card_of
from skulkd.store.errors import BadModelIdError, StoreError, UnknownModelError
from skulkd.store.fetching import Fetcher
from skulkd.store.host_files import StoreFile
from skulkd.store.host_uploads import add_upload_routes
from skulkd.store.manifest import Manifest
from skulkd.store.registry import Registry
from skulkd.store.shelf_files import Hashes, file_sizes, find_file, list_files
from skulkd.store.uploads import Uploads
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId
from skulkd.wire.storage import StoreDownload

MANIFEST_PATIENCE_S = 5.0
# For checksums that take long: a node shall learn soon how large the model is.
LARGE_BYTES = 256 << 20
LARGE_PATIENCE_S = 0.5
RETRY_AFTER_S = 1


def _is_our_error(record: logging.LogRecord) -> bool:
    """What a stranger sends that is no HTTP is answered, and fills no log with tracebacks."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


_server_log = logging.getLogger(f"{__name__}.requests")
_server_log.addFilter(_is_our_error)


@dataclass(slots=True)
class _Hashing:
    """Checksums of one model on their way."""

    task: asyncio.Task[Manifest]
    total_bytes: int
    done_bytes: int = 0


@dataclass(slots=True)
class StoreHost:
    """The server of one store. `held` says why a model must not be deleted now."""

    registry: Registry
    secret: str
    fetcher: Fetcher
    held: Callable[[str], str | None] = lambda model_id: None
    tls: ssl.SSLContext | None = None
    deleted: Callable[[], None] = lambda: None
    """Told when a model is gone."""
    uploads: Uploads | None = None
    secret_for_operators: bool = True
    describe: Callable[[str], Awaitable[ModelCard]] | None = None
    """Makes a card for a model of which there is only a config.json."""
    _hashes: dict[str, Hashes] = field(default_factory=dict)
    _hashing: dict[str, _Hashing] = field(default_factory=dict)
    _runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port. Raises OSError when it is taken, StoreError for an unusable root."""
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
        for job in self._hashing.values():
            job.task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    def _prepare_root(self) -> None:
        self.registry.root.mkdir(parents=True, exist_ok=True)
        self.registry.entries()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._only_for_members])
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
            add_upload_routes(app, self.uploads)
        return app

    @web.middleware
    async def _only_for_members(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        authorization = request.headers.get("Authorization")
        accepts = self.secret_for_operators
        if not may_use_store(authorization, self.secret, secret_for_operators=accepts):
            raise web.HTTPUnauthorized(text="401: the store requires authentication")
        try:
            return await handler(request)
        except UnknownModelError as error:
            raise web.HTTPNotFound(text=f"404: {error.message}") from error
        except BadModelIdError as error:
            raise web.HTTPBadRequest(text=f"400: {error.message}") from error
        except StoreError as error:
            raise web.HTTPInternalServerError(text=f"500: {error.message}") from error

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
        """Every model that can be loaded, with its card and its bytes."""
        found = []
        for entry in self.registry.entries():
            local = self.registry.local(entry.model_id)
            card = None if local is None else card_of(local)
            if card is not None:
                document = json.loads(card.model_dump_json())
                found.append({"card": document, "total_bytes": entry.total_bytes})
        return found

    async def _card(self, request: web.Request) -> web.Response:
        if self.describe is None:
            raise web.HTTPNotFound(text="404: this store makes no cards")
        card = await self.describe(request.match_info["id"])
        return web.Response(text=card.model_dump_json(), content_type="application/json")

    async def _files(self, request: web.Request) -> web.Response:
        directory = await asyncio.to_thread(self._directory, request.match_info["id"])
        return web.json_response(await asyncio.to_thread(list_files, directory))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        directory = await asyncio.to_thread(self._directory, request.match_info["id"])
        path = request.match_info["path"]
        if ".." in path.split("/"):
            raise web.HTTPBadRequest(text="400: Path traversal attempt rejected")
        file = await asyncio.to_thread(find_file, directory, path)
        if file is None:
            raise web.HTTPNotFound(text="404: no such file of this model")
        return StoreFile(str(file))

    async def _listing(self, request: web.Request) -> web.Response:
        """The files with their sizes, at once: a node can copy while checksums are computed."""
        model_id = request.match_info["id"]
        directory = await asyncio.to_thread(self._directory, model_id)
        sizes = await asyncio.to_thread(file_sizes, directory)
        files = [{"path": path, "size": size} for path, size in sizes.items()]
        return web.json_response({"model_id": model_id, "files": files})

    async def _manifest(self, request: web.Request) -> web.Response:
        """The manifest; 503 with the progress while checksums are being computed."""
        model_id = request.match_info["id"]
        directory = await asyncio.to_thread(self._directory, model_id)
        job = await self._hashing_of(model_id, directory)
        limit_s = LARGE_PATIENCE_S if job.total_bytes >= LARGE_BYTES else MANIFEST_PATIENCE_S
        done, _ = await asyncio.wait({job.task}, timeout=limit_s)
        if not done:
            document = {"hashed_bytes": job.done_bytes, "total_bytes": job.total_bytes}
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            return web.json_response(document, status=503, headers=headers)
        try:
            manifest = job.task.result()
        except OSError as error:
            raise web.HTTPInternalServerError(text=f"500: {error}") from error
        return web.Response(body=manifest.to_json(), content_type="application/json")

    async def _hashing_of(self, model_id: str, directory: Path) -> _Hashing:
        """The work on the checksums of a model; begun if nobody has asked for them yet."""
        sizes = {} if model_id in self._hashing else await asyncio.to_thread(file_sizes, directory)
        job = self._hashing.get(model_id)
        if job is None:
            hashes = self._hashes.setdefault(model_id, Hashes(directory))
            work = asyncio.create_task(self._hash(model_id, hashes))
            job = _Hashing(work, sum(sizes.values()))
            self._hashing[model_id] = job
            job.task.add_done_callback(lambda _: self._hashing.pop(model_id, None))
        return job

    async def _hash(self, model_id: str, hashes: Hashes) -> Manifest:
        def tell(count: int) -> None:
            job = self._hashing.get(model_id)
            if job is not None:
                job.done_bytes += count

        def work() -> Manifest:
            entries = hashes.entries(tell)
            local = self.registry.local(model_id)
            card = None if local is None else card_of(local)
            return Manifest(model_id, tuple(entries), card)

        return await asyncio.to_thread(work)

    async def _download(self, request: web.Request) -> web.Response:
        model_id = ModelId(request.match_info["id"])
        if await asyncio.to_thread(self.registry.directory, model_id) is not None:
            state = StoreDownload(model_id=model_id, status="complete", progress=1.0)
        else:
            state = self.fetcher.request(model_id, await _pinned_file(request))
        document = {"modelId": model_id, "status": state.status, "progress": state.progress}
        return web.json_response(document)

    async def _download_status(self, request: web.Request) -> web.Response:
        model_id = ModelId(request.match_info["id"])
        state = self.fetcher.status(model_id)
        if state is None or state.status == "complete":
            await asyncio.to_thread(self._directory, model_id)
            state = StoreDownload(model_id=model_id, status="complete", progress=1.0)
        return web.Response(text=state.model_dump_json(), content_type="application/json")

    async def _downloads(self, _request: web.Request) -> web.Response:
        active = [json.loads(state.model_dump_json()) for state in self.fetcher.active()]
        return web.json_response(active)

    async def _delete(self, request: web.Request) -> web.Response:
        model_id = request.match_info["id"]
        held = self.held(model_id)
        if held is not None:
            raise web.HTTPConflict(text=f"409: {model_id} is in use: {held}")
        await asyncio.to_thread(self.registry.remove, model_id)
        self._hashes.pop(model_id, None)
        self.fetcher.forget(model_id)
        self.deleted()
        return web.json_response({"modelId": model_id, "deleted": True})

    def _directory(self, model_id: str) -> Any:
        directory = self.registry.directory(model_id)
        if directory is None:
            raise UnknownModelError(f"Model {model_id} not in store")
        return directory


async def _pinned_file(request: web.Request) -> str | None:
    """The `gguf_file` of the body; what is not JSON is ignored, as in the reference."""
    try:
        document = json.loads(await request.read() or b"{}")
    except ValueError:
        return None
    pinned = document.get("gguf_file") if isinstance(document, dict) else None
    return pinned if isinstance(pinned, str) else None
