"""Two servers of one directory of models: ours, and the yardstick that only sends files.

`python -m bench.file_server (store|bare) ROOT` prints its port. Ours wants the token of SECRET.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from skulkd.store.host import StoreHost
from skulkd.store.registry import Registry
from skulkd.wire.ids import ModelId
from skulkd.wire.storage import StoreDownload

SECRET = "the-secret-of-the-bench"


class NoFetcher:
    """A store that fetches nothing."""

    def request(self, model_id: str, gguf_file: str | None = None) -> StoreDownload:
        return StoreDownload(model_id=ModelId(model_id), status="failed", progress=0.0)

    def status(self, model_id: str) -> StoreDownload | None:
        return None

    def active(self) -> Sequence[StoreDownload]:
        return []

    def forget(self, model_id: str) -> None:
        return None


async def serve(kind: str, root: Path) -> None:
    if kind == "store":
        port = await StoreHost(Registry(root), SECRET, NoFetcher()).start("127.0.0.1", 0)
    else:
        app = web.Application()
        app.router.add_static("/", root)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
    print(port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
