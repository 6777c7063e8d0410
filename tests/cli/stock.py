"""A stock Skulk 1.3.0 node for tests: recorded answers behind a real aiohttp server.

The recordings are in `data/`; a time is written there as `@now-3s` and made when served.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

DATA = Path(__file__).parent / "data"
KITE1, KITE2, KITE3 = "12D3KooWAa1fXk3Jw8Zq", "12D3KooWBb2gYm4Kx9Vr", "12D3KooWBc3hZn5Ly7Ws"


def recorded(name: str) -> Any:
    """A fresh copy of a recording, with its times made relative to now."""
    text = (DATA / f"{name}.json").read_text(encoding="utf-8")
    now = datetime.now(UTC)

    def moment(match: re.Match[str]) -> str:
        return (now - timedelta(seconds=int(match[1]))).isoformat().replace("+00:00", "Z")

    return json.loads(re.sub(r"@now-(\d+)s", moment, text))


@dataclass(frozen=True)
class Reply:
    """An answer that is not simply 200 and JSON."""

    status: int
    body: object
    text: bool = False
    content_type: str = "text/plain"
    """Of a text."""


@dataclass(frozen=True)
class Seen:
    """A request that arrived."""

    method: str
    path: str
    body: bytes
    authorization: str | None


Make = Callable[[Seen], object]


@dataclass
class StockNode:
    """Answers by (method, path without query); what is not here is a stock 404."""

    answers: dict[tuple[str, str], Make] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    server: str = "stock"
    """What it calls itself; `skulkd` makes it one of ours."""
    hang: threading.Event = field(default_factory=threading.Event)

    def on(self, method: str, path: str, answer: object) -> None:
        """Answer with this document, Reply, or whatever a function of the request gives."""
        make = answer if callable(answer) else lambda seen: answer
        self.answers[(method, path)] = make

    def start(self) -> None:
        started: Future[str] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), daemon=True
        )
        self._thread.start()
        self.url = started.result(300)

    def stop(self) -> None:
        self.hang.set()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(300)

    async def _serve(self, started: Future[str]) -> None:
        """Serve until stopped; asyncio.run ends connections that were just being accepted."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        runner = self._server()
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        started.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await self._stopping.wait()
        await runner.cleanup()

    def _server(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return web.AppRunner(app, shutdown_timeout=1)

    async def _handle(self, request: web.Request) -> web.Response:
        seen = Seen(
            request.method,
            request.path_qs,
            await request.read(),
            request.headers.get("Authorization"),
        )
        self.seen.append(seen)
        make = self.answers.get((request.method, request.path))
        if make is None:
            return web.json_response(
                {"detail": "Not Found"}, status=404, headers={"Server": self.server}
            )
        answer = make(seen)
        if answer is HANG:
            await asyncio.get_running_loop().run_in_executor(None, self.hang.wait)
            return web.Response()
        reply = answer if isinstance(answer, Reply) else Reply(200, answer)
        headers = {"Server": self.server}
        if reply.text:
            return web.Response(
                status=reply.status,
                text=str(reply.body),
                content_type=reply.content_type,
                headers=headers,
            )
        return web.json_response(reply.body, status=reply.status, headers=headers)


STORAGE = {
    "nodeId": KITE1,
    "stagingRoot": "/Users/me/.skulk/staging",
    "stagedModels": [],
    "stagedTotalBytes": 0,
    "eventLogBytes": 1773,
    "diskTotalBytes": 994662584320,
    "diskFreeBytes": 81501515776,
}
HANG = object()
"""An answer that never comes."""


def stock_node() -> StockNode:
    """Three nodes, one instance; kite3 is silent and half known, as after a fresh start."""
    node = StockNode()
    node.on("GET", "/node_id", KITE1)
    node.on("GET", "/state", lambda seen: recorded("state"))
    node.on("GET", "/config", lambda seen: recorded("config"))
    node.on("GET", "/v1/diagnostics/node", lambda seen: recorded("diagnostics_node"))
    node.on("GET", "/v1/diagnostics/cluster", lambda seen: recorded("diagnostics_cluster"))
    node.on("GET", f"/v1/diagnostics/cluster/{KITE1}", lambda seen: recorded("diagnostics_node"))
    node.on("GET", "/store/storage", STORAGE)
    node.on("GET", "/v1/tracing", {"enabled": False})
    missing = {"message": f"Node diagnostics endpoint not reachable: {KITE3}", "code": 404}
    node.on("GET", f"/v1/diagnostics/cluster/{KITE3}", Reply(404, {"error": missing}))
    return node


def error_body(message: str, code: int) -> dict[str, object]:
    return {"error": {"message": message, "type": "x", "param": None, "code": code}}
