"""A hub-shaped server on loopback: model info with checksums, files with ranges, and faults."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import web

from tests.storage.store_server import LoopThread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Hub:
    """One repository. `drops` and `lies` say how often a file breaks off or has wrong bytes."""

    model_id: str
    files: dict[str, bytes]
    drops: dict[str, int] = field(default_factory=dict)
    lies: dict[str, int] = field(default_factory=dict)
    refusals: list[int] = field(default_factory=list)
    """Statuses of the first answers."""
    sent_bytes: int = 0
    asked: list[str] = field(default_factory=list)
    url: str = ""

    async def info(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.refusals:
            return web.Response(status=self.refusals.pop(0))
        if request.match_info["id"].partition("/revision")[0] != self.model_id:
            headers = {"X-Error-Code": "RepoNotFound"}
            return web.json_response({"error": "not found"}, status=404, headers=headers)
        siblings = [self._sibling(path, data) for path, data in self.files.items()]
        return web.json_response({"id": self.model_id, "sha": COMMIT, "siblings": siblings})

    def _sibling(self, path: str, data: bytes) -> dict[str, object]:
        found: dict[str, object] = {"rfilename": path, "size": len(data), "blobId": blob_id(data)}
        if path.endswith(".safetensors"):
            digest = hashlib.sha256(data).hexdigest()
            found["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
        return found

    async def file(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        data = self.files[path]
        etag = blob_id(data)
        if path.endswith(".safetensors"):
            etag = hashlib.sha256(data).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if request.method == "HEAD":
            return web.Response(headers={**headers, "Content-Length": str(len(data))})
        start = request.http_range.start or 0
        if self.lies.get(path, 0) > 0:
            self.lies[path] -= 1
            data = b"\0" * len(data)
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        headers["Content-Length"] = str(len(data) - start)
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        await response.prepare(request)
        piece = data[start:]
        if self.drops.get(path, 0) > 0:
            self.drops[path] -= 1
            piece = piece[: len(piece) // 2]
        self.sent_bytes += len(piece)
        await response.write(piece)
        if len(piece) < len(data) - start and request.transport is not None:
            request.transport.close()
        return response


@contextlib.contextmanager
def serving_hub(hub: Hub) -> Iterator[Hub]:
    thread = LoopThread()

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/api/models/{id:.+}", hub.info)
        app.router.add_route("*", "/{org}/{name}/resolve/{rev}/{path:.+}", hub.file)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        hub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    runner = thread.run(start())
    try:
        yield hub
    finally:
        thread.run(runner.cleanup())
        thread.close()
