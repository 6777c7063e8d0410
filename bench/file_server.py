"""Two servers of one directory of models: ours, and the yardstick that only sends files.

`python -m bench.file_server (store|bare) ROOT` prints its port. Ours wants the token of SECRET.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from skulkd.store.host.registry import Registry
from skulkd.store.host.server import StoreServer
from skulkd.store.hub.downloads import HubDownloads

SECRET = "the-secret-of-the-bench"


async def serve(kind: str, root: Path) -> None:
    if kind == "store":
        downloads = HubDownloads(root, {}, offline=True)
        port = await StoreServer(Registry(root), SECRET, downloads).start("127.0.0.1", 0)
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
