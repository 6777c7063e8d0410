"""Staging from a store: whole and verified or not at all, whatever the store does."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.store.client.connection import RetryPolicy, StoreAddress
from skulkd.store.errors import (
    BadManifestError,
    BusyError,
    DownloadError,
    NoSpaceError,
    StoreError,
    StoreUnreachableError,
    UnknownModelError,
)
from skulkd.store.imports.tiny_model import make_tiny_model
from skulkd.store.manifest import Manifest, parse_manifest, path_problem
from skulkd.store.staging.area import StagingArea
from skulkd.store.staging.copy_job import CopyJob, copy_from_store, copy_model, fetch_manifest
from skulkd.store.staging.transfer import PIECE, TransferStopped
from tests.daemon_process import wait_until
from tests.storage.store_server import address_of, fake_store, manifest_of, raw_manifest, real_store

ROOT = Path(__file__).parents[2]
MODEL = "skulk/tiny-llama"
HASTY = RetryPolicy(attempts=3, silence_s=60.0, first_pause_s=0.01, longest_pause_s=0.02)
# A machine that is slow for so long is asked once more, which changes no result.
EASILY_BORED = RetryPolicy(attempts=50, silence_s=1.0, first_pause_s=0.01, longest_pause_s=0.02)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    path = make_tiny_model(root)
    (path / "sub").mkdir()
    (path / "sub" / "odd name ü.bin").write_bytes(os.urandom(3 * PIECE + 17))
    (path / "empty").write_bytes(b"")
    return root


@pytest.fixture(scope="module")
def store(source: Path) -> Iterator[StoreAddress]:
    with real_store(source) as address:
        yield address


@pytest.fixture
def area(tmp_path: Path) -> StagingArea:
    return StagingArea(tmp_path / "staging")


def bring(
    area: StagingArea, store: StoreAddress, job: CopyJob | None = None, model_id: str = MODEL
) -> Path:
    job = job or CopyJob()
    manifest = fetch_manifest(store, model_id, job, HASTY)
    return copy_model(area, store, manifest, job, retry=HASTY)


def content(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    found = {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}
    return {name: data for name, data in found.items() if not name.startswith(".")}


def test_a_model_arrives_whole_and_marked(
    area: StagingArea, store: StoreAddress, source: Path
) -> None:
    job = CopyJob()
    path = bring(area, store, job)
    assert content(path) == content(source / "skulk--tiny-llama")
    assert area.is_complete(MODEL)
    assert job.done_bytes == job.total_bytes == sum(map(len, content(path).values()))
    assert job.done_files == len(job.sizes) == len(content(path))


def test_a_whole_copy_is_not_fetched_again(area: StagingArea, store: StoreAddress) -> None:
    manifest = fetch_manifest(store, MODEL, CopyJob(), HASTY)
    copy_model(area, store, manifest, CopyJob(), retry=HASTY)
    nowhere = address_of(9)
    assert copy_model(area, nowhere, manifest, CopyJob(), retry=HASTY).is_dir()


def test_what_was_verified_before_and_the_start_of_a_file_are_kept(
    area: StagingArea, store: StoreAddress, source: Path
) -> None:
    path = bring(area, store)
    odd = path / "sub" / "odd name ü.bin"
    data = odd.read_bytes()
    odd.unlink()
    odd.with_name(odd.name + ".partial").write_bytes(data[:PIECE])
    (path / "older.bin").write_bytes(b"of another version")
    area.unmark(MODEL)
    job = CopyJob()
    bring(area, store, job)
    assert job.total_bytes - job.present_bytes == len(data) - PIECE
    assert content(path) == content(source / "skulk--tiny-llama")
    assert area.is_complete(MODEL)


def test_a_new_version_in_the_store_replaces_what_differs(
    area: StagingArea, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    model = make_tiny_model(root)
    (model / "note.txt").write_bytes(b"one")
    with real_store(root) as store:
        path = bring(area, store)
        (model / "note.txt").write_bytes(b"two")
        bring(area, store)
        assert (path / "note.txt").read_bytes() == b"two"
        assert area.is_complete(MODEL)


@pytest.mark.parametrize("damage", ["wrong start", "longer than the file"])
def test_a_damaged_beginning_is_thrown_away_and_fetched_again(
    area: StagingArea, store: StoreAddress, source: Path, damage: str
) -> None:
    partial = area.path_of(MODEL) / "sub" / "odd name ü.bin.partial"
    partial.parent.mkdir(parents=True)
    size = PIECE if damage == "wrong start" else 5 * PIECE
    partial.write_bytes(b"\0" * size)
    path = bring(area, store)
    assert content(path) == content(source / "skulk--tiny-llama")


def test_two_nodes_stage_one_model_at_once(
    tmp_path: Path, store: StoreAddress, source: Path
) -> None:
    areas = [StagingArea(tmp_path / name) for name in ("a", "b")]
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda area: bring(area, store), areas))
    for path in paths:
        assert content(path) == content(source / "skulk--tiny-llama")


def test_two_daemons_do_not_fill_one_directory_together(
    area: StagingArea, store: StoreAddress
) -> None:
    area.path_of(MODEL).mkdir(parents=True)
    with area.locked("skulk--tiny-llama"), pytest.raises(BusyError):
        bring(area, store)


def test_a_stop_ends_it_and_keeps_what_is_there(area: StagingArea, tmp_path: Path) -> None:
    asked = threading.Event()

    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"x" * 10)
        asked.set()
        await asyncio.sleep(60)
        return response

    entry = {"path": "a", "size": 100, "sha256": "0" * 64}
    with fake_store(raw_manifest("org/m", entry), trickle) as store:
        job = CopyJob()
        patient = RetryPolicy(attempts=3, silence_s=120.0)
        manifest = fetch_manifest(store, "org/m", job, patient)
        stopper = threading.Thread(target=lambda: (asked.wait(300), job.stop()))
        stopper.start()
        with pytest.raises(TransferStopped):
            copy_model(area, store, manifest, job, retry=patient)
        stopper.join()
    assert not area.is_complete("org/m")


# --- a process that is killed ---

STAGE = """
import os, pathlib, signal, sys
from skulkd.store.staging.copy_job import CopyJob, copy_model, fetch_manifest
from skulkd.store.staging.area import StagingArea
from skulkd.store.client.connection import RetryPolicy, StoreAddress
root, port, token, model, limit = sys.argv[1:]
class Doomed(CopyJob):
    def add_bytes(self, path, count):
        super().add_bytes(path, count)
        if self.done_bytes - self.present_bytes >= int(limit):
            os.kill(os.getpid(), signal.SIGKILL)
address = StoreAddress("127.0.0.1", int(port), token)
job = Doomed()
retry = RetryPolicy(silence_s=60.0)
copy_model(StagingArea(pathlib.Path(root)), address,
            fetch_manifest(address, model, job, retry), job, retry=retry)
"""


def test_after_a_kill_at_most_one_piece_of_each_file_is_sent_again(
    area: StagingArea, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    model = make_tiny_model(root)
    for number in range(3):
        (model / f"big{number}").write_bytes(os.urandom(2 * PIECE + number))
    with real_store(root) as store:
        limit = 3 * PIECE
        child = subprocess.run(
            [sys.executable, "-c", STAGE, area.root, str(store.port), store.token, MODEL,
             str(limit)],
            cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False,
        )  # fmt: skip
        assert child.returncode == -signal.SIGKILL
        assert not area.is_complete(MODEL)
        job = CopyJob()
        path = bring(area, store, job)
    sent_before = limit
    sent_again = job.total_bytes - job.present_bytes
    assert sent_before + sent_again - job.total_bytes <= 4 * PIECE
    assert job.present_bytes >= limit - 4 * PIECE
    assert content(path) == content(model)


# --- room ---


def test_what_does_not_fit_is_refused_with_the_sum_and_the_way_out(area: StagingArea) -> None:
    huge = {"path": "weights", "size": 1 << 49, "sha256": "0" * 64}
    manifest = parse_manifest(raw_manifest("org/huge", huge), "org/huge")
    with pytest.raises(NoSpaceError) as caught:
        copy_model(area, address_of(9), manifest, CopyJob(), freeable=lambda: 3 << 30)
    message = caught.value.message
    assert "staging org/huge needs 524288.00 GiB more" in message
    assert "are free" in message
    assert "short" in message
    assert "purging unused staged models would free 3.00 GiB, which is not enough" in (message)
    assert caught.value.hint == "skulkctl purge-staging --dry-run"


def test_a_disk_that_fills_up_meanwhile_is_not_left_full(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("skulkd.store.staging.copy_job.SPARE_BYTES", -(1 << 40))
    root = tmp_path / "store"
    (root / "org--m").mkdir(parents=True)
    (root / "org--m" / "weights").write_bytes(os.urandom(1 << 20))
    area = StagingArea(small_disk)
    with real_store(root) as store:
        manifest = manifest_of(root / "org--m", "org/m")
        (root / "registry.json").write_text(json.dumps({"org/m": {
            "model_id": "org/m", "store_path": "org--m", "files": [], "downloaded_at": "",
            "total_bytes": 1, "repo_has_projector": None}}))  # fmt: skip
        with pytest.raises(NoSpaceError, match="became full while org/m was staged"):
            copy_model(area, store, manifest, CopyJob(), retry=HASTY)
    assert area.copies() == []
    assert os.statvfs(small_disk).f_bavail * 4096 > 100_000


# --- stores that are not what they should be ---


def test_nobody_there_is_said_with_the_address(area: StagingArea) -> None:
    with pytest.raises(StoreUnreachableError, match=r"http://127\.0\.0\.1:9.*refused"):
        bring(area, address_of(9))


def test_a_model_that_is_not_there_is_unknown(area: StagingArea, store: StoreAddress) -> None:
    with pytest.raises(UnknownModelError):
        bring(area, store, model_id="no/such")


def test_another_secret_is_told_from_other_trouble(area: StagingArea, store: StoreAddress) -> None:
    with pytest.raises(DownloadError, match="does not accept this node's cluster secret"):
        bring(area, address_of(store.port, "another-secret"))


async def no_file(_request: web.Request) -> web.StreamResponse:
    raise AssertionError("nothing may be asked of a store with such a manifest")


BAD_PATHS = [
    "../../etc/cron.d/x", "/etc/passwd", "a/../../b", "..", ".", "", "a//b", "a/", ".complete",
    ".last_used", "sub/.hidden", "x.partial", "a\\b", "a\nb", "a\0b", "x" * 300, "a/" * 300 + "b",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS, ids=repr)
def test_a_path_that_leads_elsewhere_is_refused_before_anything_is_written(
    area: StagingArea, path: str
) -> None:
    entry = {"path": path, "size": 1, "sha256": "0" * 64}
    with (
        fake_store(raw_manifest("org/m", entry), no_file) as store,
        pytest.raises(BadManifestError, match="refused"),
    ):
        bring(area, store, model_id="org/m")
    assert not area.root.exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"{}", b'{"model_id": "org/m", "files": []}',
        b'{"model_id": "org/other", "files": [{"path": "a", "size": 1, "sha256": ""}]}',
        raw_manifest("org/m", {"path": "a", "size": -1, "sha256": "0" * 64}),
        raw_manifest("org/m", {"path": "a", "size": True, "sha256": "zz"}),
        raw_manifest("org/m", {"path": "a", "size": 1 << 60, "sha256": "0" * 64}),
        raw_manifest("org/m", {"path": "a", "size": 1, "sha256": "short"}),
        raw_manifest("org/m", *[{"path": p, "size": 1, "sha256": "0" * 64} for p in ("a", "A")]),
        raw_manifest("org/m", *[{"path": p, "size": 1, "sha256": "0" * 64} for p in ("a", "a/b")]),
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_manifest_that_makes_no_sense_is_refused(raw: bytes) -> None:
    with pytest.raises(BadManifestError):
        parse_manifest(raw, "org/m")


@settings(deadline=None)
@given(st.text(max_size=30))
def test_no_accepted_path_leaves_its_directory(path: str) -> None:
    if path_problem(path) is None:
        assert os.path.normpath(f"/root/x/{path}") == f"/root/x/{path}"


WRONG = b"y" * 64
RIGHT = b"x" * 64


def manifest_for(data: bytes) -> bytes:
    digest = hashlib.sha256(data).hexdigest()
    return raw_manifest("org/m", {"path": "a", "size": len(data), "sha256": digest})


@pytest.mark.parametrize(
    "body",
    [WRONG, b"x" * 63, b"x" * 65, b""],
    ids=["wrong bytes", "too short", "too long", "nothing"],
)
def test_a_store_that_lies_about_a_file_is_found_out(area: StagingArea, body: bytes) -> None:
    async def lie(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    with (
        fake_store(manifest_for(RIGHT), lie) as store,
        pytest.raises((BadManifestError, DownloadError), match=r"a of org/m|manifest"),
    ):
        bring(area, store, model_id="org/m")
    assert not area.is_complete("org/m")
    assert not (area.path_of("org/m") / "a").exists()


def test_a_range_that_was_not_asked_for_is_refused(area: StagingArea) -> None:
    async def other(_request: web.Request) -> web.StreamResponse:
        headers = {"Content-Range": "bytes 0-53/64"}
        return web.Response(status=206, body=RIGHT[10:], headers=headers)

    area.path_of("org/m").mkdir(parents=True)
    (area.path_of("org/m") / "a.partial").write_bytes(RIGHT[:10])
    with (
        fake_store(manifest_for(RIGHT), other) as store,
        pytest.raises(BadManifestError, match="others sent"),
    ):
        bring(area, store, model_id="org/m")


def test_a_store_that_ignores_ranges_costs_time_and_nothing_else(area: StagingArea) -> None:
    async def whole(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=RIGHT)

    area.path_of("org/m").mkdir(parents=True)
    (area.path_of("org/m") / "a.partial").write_bytes(RIGHT[:10])
    with fake_store(manifest_for(RIGHT), whole) as store:
        job = CopyJob()
        path = bring(area, store, job, model_id="org/m")
    assert (path / "a").read_bytes() == RIGHT
    assert job.done_bytes == len(RIGHT)


@pytest.mark.parametrize("way", ["dies", "stalls"])
def test_a_store_that_breaks_off_is_asked_for_the_rest(area: StagingArea, way: str) -> None:
    asked: list[str | None] = []

    async def sixteen_bytes(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Range"))
        start = int((request.headers.get("Range") or "bytes=0-")[6:-1])
        headers = {"Content-Length": str(64 - start)}
        if start:
            headers["Content-Range"] = f"bytes {start}-63/64"
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        await response.prepare(request)
        await response.write(RIGHT[start : start + 16])
        if way == "stalls" and start == 0:
            await asyncio.sleep(60)
        if start + 16 < 64 and request.transport is not None:
            request.transport.abort()
        return response

    with fake_store(manifest_for(RIGHT), sixteen_bytes) as store:
        manifest = fetch_manifest(store, "org/m", CopyJob(), HASTY)
        path = copy_model(area, store, manifest, CopyJob(), retry=EASILY_BORED)
    assert (path / "a").read_bytes() == RIGHT
    assert list(dict.fromkeys(asked)) == [None, "bytes=16-", "bytes=32-", "bytes=48-"]


def test_a_store_that_never_gets_on_is_given_up_with_the_cause(area: StagingArea) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    with (
        fake_store(manifest_for(RIGHT), cut) as store,
        pytest.raises(DownloadError, match="a of org/m: the store at"),
    ):
        bring(area, store, model_id="org/m")


def test_links_in_the_staging_directory_are_not_followed(
    area: StagingArea, store: StoreAddress, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    path = area.path_of(MODEL)
    path.mkdir(parents=True)
    (path / "config.json").symlink_to(precious)
    (path / "config.json.partial").symlink_to(precious)
    bring(area, store)
    assert precious.read_bytes() == b"precious"
    assert not (path / "config.json").is_symlink()


class Hashing:
    """A store that has no checksums yet; `finish` lets it tell them."""

    def __init__(self, content: bytes, told: bytes | None = None) -> None:
        self.content = content
        self.manifest = manifest_for(content if told is None else told)
        self.done = threading.Event()
        self.asked: list[str | None] = []

    def tell(self) -> bytes:
        if not self.done.is_set():
            size = len(self.content)
            raise web.HTTPServiceUnavailable(text=f'{{"hashed_bytes": 5, "total_bytes": {size}}}')
        return self.manifest

    async def file(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.headers.get("Range"))
        return web.Response(body=self.content)

    def listing(self) -> bytes:
        files = [{"path": "a", "size": len(self.content)}]
        return json.dumps({"model_id": "org/m", "files": files}).encode()


def stage_beside(area: StagingArea, store: StoreAddress, job: CopyJob) -> Future[Path]:
    """A staging in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    staged = pool.submit(copy_from_store, area, store, "org/m", job, retry=HASTY)
    pool.shutdown(wait=False)
    return staged


def test_bytes_are_copied_while_the_store_computes_checksums(area: StagingArea) -> None:
    hashing, job = Hashing(RIGHT), CopyJob()
    with fake_store(hashing.tell, hashing.file, hashing.listing) as store:
        staged = stage_beside(area, store, job)
        wait_until(lambda: job.done_bytes == len(RIGHT), "every byte", 30.0)
        assert (job.total_bytes, job.hashed) == (64, (5, 64))
        assert not staged.done()
        assert not area.is_complete("org/m")
        assert not (area.path_of("org/m") / "a").exists(), (
            "not under its name before it is verified"
        )
        hashing.done.set()
        path = staged.result(30.0)
    assert (path / "a").read_bytes() == RIGHT
    assert area.is_complete("org/m")
    assert hashing.asked == [None], "no byte is asked for twice"
    assert (job.done_bytes, job.present_bytes, job.done_files) == (64, 0, 1)


def test_bytes_that_were_copied_early_are_verified_like_all_others(area: StagingArea) -> None:
    hashing = Hashing(b"wrong" * 16, told=b"right" * 16)
    with fake_store(hashing.tell, hashing.file, hashing.listing) as store:
        staged = stage_beside(area, store, CopyJob())
        wait_until(lambda: hashing.asked, "the first bytes", 30.0)
        hashing.done.set()
        with pytest.raises(BadManifestError, match="does not match the store's manifest"):
            staged.result(30.0)
    assert not area.is_complete("org/m")
    assert not (area.path_of("org/m") / "a").exists()


def test_a_store_without_listings_is_waited_for(area: StagingArea) -> None:
    hashing, job = Hashing(RIGHT), CopyJob()
    with fake_store(hashing.tell, hashing.file) as store:
        staged = stage_beside(area, store, job)
        wait_until(lambda: job.hashed is not None, "the first answer", 30.0)
        hashing.done.set()
        path = staged.result(30.0)
    assert (path / "a").read_bytes() == RIGHT


def test_a_stop_ends_a_copy_that_waits_for_checksums(area: StagingArea) -> None:
    hashing, job = Hashing(RIGHT), CopyJob()
    with fake_store(hashing.tell, hashing.file, hashing.listing) as store:
        staged = stage_beside(area, store, job)
        wait_until(lambda: job.done_bytes == len(RIGHT), "every byte", 30.0)
        job.stop()
        with pytest.raises(StoreError):
            staged.result(30.0)
    assert not area.is_complete("org/m")


def test_checksums_that_take_long_are_waited_for(area: StagingArea) -> None:
    answers = iter([b"", b""])

    async def file(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=RIGHT)

    def manifest() -> bytes:
        if next(answers, None) is not None:
            raise web.HTTPServiceUnavailable(text='{"hashed_bytes": 5, "total_bytes": 10}')
        return manifest_for(RIGHT)

    with fake_store(manifest, file) as store:
        job = CopyJob()
        found: Manifest = fetch_manifest(store, "org/m", job, HASTY)
    assert found.total_bytes == 64
    assert job.total_bytes == 10, "the total is known before the first byte"
    assert job.hashed is None
