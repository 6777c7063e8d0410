"""Requests per second of the daemon's cheapest and busiest reads, against a bare handler."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure, alternate
from bench.load import CONNECTIONS, requests_per_second
from scripts.live_daemon import live_daemon

ROUNDS = 5
BOUNDS = {"/node_id": 0.7, "/state": 0.4}


@contextmanager
def bare_server(body: bytes) -> Iterator[str]:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(body)
        server = subprocess.Popen(
            [sys.executable, "-m", "bench.bare_server", file.name],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/"
        finally:
            server.kill()
            server.wait()


def run() -> list[Figure]:
    figures = []
    with live_daemon("bench") as daemon:
        for path, bound in BOUNDS.items():
            url = daemon.url.rstrip("/") + path
            with urllib.request.urlopen(url) as answer:
                body = answer.read()
            with bare_server(body) as bare:
                medians = alternate(
                    ROUNDS,
                    {
                        "bare": lambda bare=bare: requests_per_second(bare),
                        "ours": lambda url=url: requests_per_second(url),
                    },
                )
            figures.append(
                Figure(
                    f"`GET {path}` / bare aiohttp handler, same {len(body)} bytes",
                    medians["ours"] / medians["bare"],
                    bound,
                    "more",
                    detail=f"{medians['ours']:.0f} against {medians['bare']:.0f} requests/s, "
                    f"{CONNECTIONS} connections, median of {ROUNDS}",
                )
            )
    return figures
