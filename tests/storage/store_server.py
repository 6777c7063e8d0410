"""A real store server in a thread of its own, and one that a test can make lie."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from skulkd.store.client.connection import StoreAddress
from skulkd.store.host.checksums import Checksums
from skulkd.store.host.registry import Registry
from skulkd.store.host.server import StoreServer
from skulkd.store.hub.downloads import HubDownloads
from skulkd.store.manifest import Manifest
from skulkd.store.security import store_token

SECRET = "a-secret-of-the-storage-tests"
DEADLINE_S = 300.0

T = TypeVar("T")


def no_hub(root: Path) -> HubDownloads:
    """Downloads of a node that may not use the hub: each fails at once."""
    return HubDownloads(root, {}, offline=True)


class LoopThread:
    """An event loop beside the test."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_S)

    def close(self) -> None:
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()

    async def _cancel_all(self) -> None:
        """End handlers that a test left waiting, so that none is destroyed while it waits."""
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def address_of(port: int, secret: str = SECRET) -> StoreAddress:
    return StoreAddress("127.0.0.1", port, store_token(secret))


@contextlib.contextmanager
def real_store(root: Path, host: StoreServer | None = None) -> Iterator[StoreAddress]:
    """The address of a server over this directory."""
    thread = LoopThread()
    host = host or StoreServer(Registry(root), SECRET, no_hub(root))
    try:
        yield address_of(thread.run(host.start("127.0.0.1", 0)))
    finally:
        thread.run(host.stop())
        thread.close()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.contextmanager
def fake_store(
    manifest: bytes | Callable[[], bytes],
    file: Handler,
    listing: Callable[[], bytes] | None = None,
) -> Iterator[StoreAddress]:
    """A store that says this of its models and handles files as the test likes."""
    thread = LoopThread()

    async def tell(_request: web.Request) -> web.Response:
        body = manifest() if callable(manifest) else manifest
        return web.Response(body=body, content_type="application/json")

    async def list_files(_request: web.Request) -> web.Response:
        return web.Response(body=listing() if listing else b"", content_type="application/json")

    async def start() -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.router.add_get("/manifests/{id}", tell)
        if listing is not None:
            app.router.add_get("/listings/{id}", list_files)
        app.router.add_get("/models/{id}/{path:.+}", file)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, int(runner.addresses[0][1])

    runner, port = thread.run(start())
    try:
        yield address_of(port)
    finally:
        thread.run(runner.cleanup())
        thread.close()


def manifest_of(directory: Path, model_id: str) -> Manifest:
    return Manifest(model_id, tuple(Checksums(directory).entries()))


def raw_manifest(model_id: str, *files: dict[str, Any]) -> bytes:
    return json.dumps({"model_id": model_id, "files": files, "card": None}).encode()
