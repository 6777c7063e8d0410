"""Staging beside curl, the storage view of a full node, and what a killed staging sends twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure, alternate
from bench.file_server import SECRET
from scripts.live_daemon import live_daemon
from skulkd.store.client.connection import DEFAULT_RETRY, StoreAddress
from skulkd.store.security import store_token
from skulkd.store.staging.area import StagingArea
from skulkd.store.staging.copy_job import CopyJob, copy_model, fetch_manifest
from skulkd.store.staging.transfer import PIECE

MODEL = "org/bench"
FILES = 4
FILE_BYTES = 128 << 20
ROUNDS = 5
COPIES = 200
LOOKS = 30

KILLED = """
import os, pathlib, signal, sys
from skulkd.store.staging.copy_job import CopyJob, copy_model, fetch_manifest
from skulkd.store.staging.area import StagingArea
from skulkd.store.client.connection import DEFAULT_RETRY, StoreAddress
root, port, token, model, limit = sys.argv[1:]
class Doomed(CopyJob):
    def add_bytes(self, path, count):
        super().add_bytes(path, count)
        if self.done_bytes >= int(limit):
            os.kill(os.getpid(), signal.SIGKILL)
job, address = Doomed(), StoreAddress("127.0.0.1", int(port), token)
manifest = fetch_manifest(address, model, job, DEFAULT_RETRY)
copy_model(StagingArea(pathlib.Path(root)), address, manifest, job)
"""


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="skulk-bench-") as folder:
        base = Path(folder)
        root = _make_store(base / "store")
        with _server("store", root) as port:
            address = StoreAddress("127.0.0.1", port, store_token(SECRET))
            figures = [_speed(base, root, address), _resent(base, address)]
    return [*figures, _view()]


def _make_store(root: Path) -> Path:
    model = root / "org--bench"
    model.mkdir(parents=True)
    names = [f"part{number}.bin" for number in range(FILES)]
    for name in names:
        (model / name).write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
    entry = {
        "model_id": MODEL, "store_path": model.name, "files": names, "downloaded_at": "",
        "total_bytes": FILES * FILE_BYTES, "repo_has_projector": None,
    }  # fmt: skip
    (root / "registry.json").write_text(json.dumps({MODEL: entry}))
    return root


@contextmanager
def _server(kind: str, root: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "bench.file_server", kind, str(root)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


def _speed(base: Path, root: Path, address: StoreAddress) -> Figure:
    manifest = fetch_manifest(address, MODEL, CopyJob(), DEFAULT_RETRY)
    area = StagingArea(base / "staging")

    def stage() -> float:
        shutil.rmtree(area.root, ignore_errors=True)
        began = time.perf_counter()
        copy_model(area, address, manifest, CopyJob())
        return time.perf_counter() - began

    with _server("bare", root) as port:

        def curl() -> float:
            target = base / "curl"
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            url = f"http://127.0.0.1:{port}/org--bench/part[0-{FILES - 1}].bin"
            began = time.perf_counter()
            subprocess.run(
                ["curl", "-sfZ", "--no-progress-meter", url, "-o", str(target / "part#1.bin")],
                check=True,
            )
            return time.perf_counter() - began

        taken = alternate(ROUNDS, {"stage": stage, "curl": curl})
    rate = FILES * FILE_BYTES / 1e6
    return Figure(
        "Staging with verification, beside parallel curl",
        taken["curl"] / taken["stage"],
        0.8,
        "more",
        "×",
        f"{rate / taken['stage']:.0f} MB/s, curl {rate / taken['curl']:.0f} MB/s",
    )


def _resent(base: Path, address: StoreAddress) -> Figure:
    root = base / "killed"
    half = FILES * FILE_BYTES // 2
    arguments = [str(root), str(address.port), address.token, MODEL, str(half)]
    child = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert child.returncode == -signal.SIGKILL, child
    job = CopyJob()
    manifest = fetch_manifest(address, MODEL, job, DEFAULT_RETRY)
    copy_model(StagingArea(root), address, manifest, job)
    again = half - job.present_bytes
    return Figure(
        "Sent again after kill -9, in pieces per file",
        max(0, again) / PIECE / FILES,
        1,
        "less",
        "pieces",
        f"killed after {half >> 20} MiB of {FILES} files",
    )


def _view() -> Figure:
    config = (
        "model_store:\n  store_host: elsewhere\n  store_http_host: 127.0.0.1\n"
        "  store_port: 9\n  store_path: /nowhere\n"
    )
    with live_daemon("bench", config=config) as daemon:
        area = StagingArea(daemon.home / "staging")
        for number in range(COPIES):
            path = area.path_of(f"org/m{number}")
            path.mkdir(parents=True)
            for name in ("config.json", "model-1.safetensors", "model-2.safetensors"):
                (path / name).write_bytes(b"x")
            area.touch(f"org/m{number}", float(number))
        taken = []
        for _ in range(LOOKS):
            began = time.perf_counter()
            with urllib.request.urlopen(f"{daemon.url}/store/storage", timeout=30) as answer:
                found = json.load(answer)
            taken.append(time.perf_counter() - began)
        assert len(found["stagedModels"]) == COPIES
    return Figure(
        f"GET /store/storage with {COPIES} staged models",
        statistics.median(taken) * 1000,
        50,
        "less",
        "ms",
        f"median of {LOOKS}",
    )
