"""Files for a shard: from the disk, the store, or the hub behind it; shared and stoppable."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from skulkd.store.client import store_client as store_calls
from skulkd.store.client.connection import RetryPolicy, StoreAddress
from skulkd.store.config import StoreConfig
from skulkd.store.errors import DownloadError, NoSpaceError, StoreUnreachableError
from skulkd.store.imports.tiny_model import TinyShape, make_tiny_model
from skulkd.store.library import ModelLibrary
from skulkd.store.service import StoreDeps, StoreService, build_store
from skulkd.store.staging import manager as staging
from skulkd.store.staging.area import StagingArea
from skulkd.store.staging.copy_job import CopyJob
from skulkd.store.staging.progress import DownloadEntry, Throttle, TransferProgress
from skulkd.wire.config import DownloadSection, ModelStoreSection, StagingSection
from skulkd.wire.downloads import (
    DownloadCompleted,
    DownloadFailed,
    DownloadOngoing,
    DownloadPending,
    DownloadProgress,
    DownloadProgressData,
)
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.state import State
from tests.storage.cards import card, instance, shard, stage, state_with, until
from tests.storage.store_server import SECRET, fake_store, raw_manifest, real_store

MODEL = "skulk/tiny-llama"
NODE = NodeId("node-a")
HASTY = RetryPolicy(attempts=2, silence_s=60.0, first_pause_s=0.01, longest_pause_s=0.01)


class Rig:
    """A node with a store room, its state and what it told."""

    def __init__(self, home: Path, port: int, *, offline: bool = False, **store: object) -> None:
        self.told: list[DownloadProgress] = []
        self.state = State()
        area = StagingArea(home / "staging")
        section = ModelStoreSection(
            store_host="elsewhere",
            store_http_host="127.0.0.1",
            store_port=port,
            store_path="/nowhere",
            **store,
        )
        setup = StoreConfig(home / "models", offline, section, None, StagingSection(), area)
        library = ModelLibrary.over(home / "models")
        library._staging = area
        around = StoreDeps(
            node_id=NODE,
            state=lambda: self.state,
            view=lambda: self.state,
            publish=self.told.append,
            running=list,
            measured=dict,
            event_log=home / "events",
            logs=home / "logs",
            environ={},
            secret=SECRET,
        )
        self.area = area
        self.room: StoreService = build_store(setup, library, around)
        self.room.staging.retry = HASTY

    def kinds(self) -> list[type[DownloadProgress]]:
        return list(dict.fromkeys(type(entry) for entry in self.told))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    make_tiny_model(root)
    make_tiny_model(root, "skulk/draft", TinyShape(layers=1))
    return root


@pytest.fixture(scope="module")
def store(source: Path) -> Iterator[StoreAddress]:
    with real_store(source) as address:
        yield address


@pytest.fixture
async def rig(tmp_path: Path, store: StoreAddress) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path, store.port)
    yield rig
    await rig.room.stop()


async def test_a_model_is_staged_with_its_companions_and_told(rig: Rig) -> None:
    wanted = card(MODEL, drafter="skulk/draft")
    path = await rig.room.staging.ensure(shard(wanted))
    assert path == rig.area.path_of(MODEL)
    assert rig.area.is_complete(MODEL)
    assert rig.area.is_complete("skulk/draft")
    assert rig.kinds() == [DownloadOngoing, DownloadCompleted]
    last = [e for e in rig.told if e.shard_metadata.model_card.model_id == MODEL][-1]
    assert isinstance(last, DownloadCompleted)
    assert last.node_id == NODE
    assert last.total.in_bytes > 1_000_000


async def test_an_offline_node_stages_over_the_lan(tmp_path: Path, store: StoreAddress) -> None:
    rig = Rig(tmp_path, store.port, offline=True)
    await rig.room.staging.ensure(shard(card(MODEL)))
    assert rig.area.is_complete(MODEL)


async def test_what_is_here_is_used_at_once_and_its_use_noted(rig: Rig) -> None:
    await rig.room.staging.ensure(shard(card(MODEL)))
    rig.area.touch(MODEL, 5.0)
    rig.told.clear()
    await rig.room.staging.ensure(shard(card(MODEL)))
    assert rig.told == []
    assert rig.area.copies()[0].last_used > 5.0


async def test_two_who_ask_at_once_share_one_transfer(rig: Rig) -> None:
    one, two = await asyncio.gather(
        rig.room.staging.ensure(shard(card(MODEL))), rig.room.staging.ensure(shard(card(MODEL)))
    )
    assert one == two
    assert sum(isinstance(entry, DownloadCompleted) for entry in rig.told) == 1


async def test_a_missing_optional_companion_does_not_stop_a_model(rig: Rig) -> None:
    await rig.room.staging.ensure(shard(card(MODEL, sidecar="skulk/no-such")))
    assert rig.area.is_complete(MODEL)


async def test_missing_vision_weights_do(rig: Rig) -> None:
    with pytest.raises(DownloadError, match=f"vision weights skulk/no-such of {MODEL}"):
        await rig.room.staging.ensure(shard(card(MODEL, vision="skulk/no-such")))


async def test_a_model_that_neither_store_nor_hub_gives_fails_with_the_cause(rig: Rig) -> None:
    with pytest.raises(DownloadError, match=r"the store host cannot download no/such: .*offline"):
        await rig.room.staging.ensure(shard(card("no/such")))
    assert isinstance(rig.told[-1], DownloadFailed)
    assert "offline" in rig.told[-1].error_message


async def test_without_the_fallback_nobody_asks_the_hub(
    tmp_path: Path, store: StoreAddress
) -> None:
    rig = Rig(tmp_path, store.port, download=DownloadSection(allow_hf_fallback=False))
    with pytest.raises(Exception, match="allow_hf_fallback"):
        await rig.room.staging.ensure(shard(card("no/such")))


async def test_a_host_that_is_down_is_not_a_missing_model(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 9)
    with pytest.raises(StoreUnreachableError, match="refused"):
        await rig.room.staging.ensure(shard(card(MODEL)))
    assert isinstance(rig.told[-1], DownloadFailed)


async def test_what_does_not_fit_says_what_a_purge_would_free(tmp_path: Path) -> None:
    async def no_file(_request: web.Request) -> web.StreamResponse:
        raise AssertionError

    huge = {"path": "weights", "size": 1 << 49, "sha256": "0" * 64}
    with fake_store(raw_manifest("org/huge", huge), no_file) as store:
        rig = Rig(tmp_path, store.port)
        stage(rig.area, "org/idle", 4 << 20)
        stage(rig.area, "org/used", 4 << 20)
        rig.state = state_with(instance(card("org/used"), NODE))
        with pytest.raises(NoSpaceError, match=r"would free 0\.00 GiB, which is not enough"):
            await rig.room.staging.ensure(shard(card("org/huge")))
    assert rig.room.evictor.freeable_bytes() // (1 << 20) == 4


class SlowStore:
    """A store whose one file comes when the test says so."""

    data = b"x" * 1000

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.asked = 0

    @property
    def manifest(self) -> bytes:
        digest = hashlib.sha256(self.data).hexdigest()
        return raw_manifest("org/m", {"path": "w", "size": len(self.data), "sha256": digest})

    async def file(self, request: web.Request) -> web.StreamResponse:
        self.loop = asyncio.get_running_loop()
        self.asked += 1
        response = web.StreamResponse(headers={"Content-Length": str(len(self.data))})
        await response.prepare(request)
        await response.write(self.data[:500])
        await self.go.wait()
        await response.write(self.data[500:])
        return response

    def finish(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.go.set)


async def test_a_purge_while_a_model_is_staged_leaves_it_alone(tmp_path: Path) -> None:
    slow = SlowStore()
    with fake_store(slow.manifest, slow.file) as store:
        rig = Rig(tmp_path, store.port)
        staging = asyncio.create_task(rig.room.staging.ensure(shard(card("org/m"))))
        await until(lambda: slow.asked, "the transfer")
        result = await rig.room.evictor.purge(None)
        assert [m.reasons for m in result.skipped] == [["being staged"]]
        assert result.purged == []
        slow.finish()
        # It is no loadable model, but every byte is there.
        path = await staging
    assert (path / "w").read_bytes() == slow.data
    assert rig.area.is_complete("org/m")


async def test_a_purge_while_a_model_is_loaded_leaves_it_alone(rig: Rig) -> None:
    await rig.room.staging.ensure(shard(card(MODEL)))
    rig.state = state_with(instance(card(MODEL), NODE))
    result = await rig.room.evictor.purge(MODEL)
    assert [m.reasons for m in result.skipped] == [["instance 1f2e3d4c"]]
    assert rig.area.is_complete(MODEL)
    rig.state = State()
    result = await rig.room.evictor.purge(MODEL)
    assert result.freed_bytes > 0
    assert rig.area.copies() == []


async def test_who_needs_a_model_that_is_being_deleted_gets_a_new_copy(rig: Rig) -> None:
    await rig.room.staging.ensure(shard(card(MODEL)))
    purge = asyncio.create_task(rig.room.evictor.purge(MODEL))
    await until(lambda: rig.room.staging.removing or purge.done(), "the deletion")
    path = await rig.room.staging.ensure(shard(card(MODEL)))
    await purge
    assert rig.area.is_complete(MODEL) or not path.exists()
    await rig.room.staging.ensure(shard(card(MODEL)))
    assert rig.area.is_complete(MODEL)


async def test_when_nobody_waits_any_more_the_transfer_ends(tmp_path: Path) -> None:
    slow = SlowStore()
    with fake_store(slow.manifest, slow.file) as store:
        rig = Rig(tmp_path, store.port)
        tasks = [
            asyncio.create_task(rig.room.staging.ensure(shard(card("org/m")))) for _ in range(2)
        ]
        await until(lambda: slow.asked, "the transfer")
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        assert [c.model_id for c in rig.room.staging.active] == ["org/m"]
        tasks[1].cancel()
        await asyncio.wait(tasks)
        await until(lambda: not rig.room.staging.active, "the end of the job")
    assert isinstance(rig.told[-1], DownloadPending)
    assert not rig.area.is_complete("org/m")


# --- what the state is told without anybody asking ---


async def test_the_state_learns_what_is_here_and_what_the_store_offers(
    rig: Rig, tmp_path: Path
) -> None:
    make_tiny_model(tmp_path / "models", "local/one")
    await rig.room.inventory.refresh()
    by_model = {entry.shard_metadata.model_card.model_id: entry for entry in rig.told}
    assert isinstance(by_model["local/one"], DownloadCompleted)
    assert isinstance(by_model[MODEL], DownloadPending)
    assert by_model[MODEL].total.in_bytes > 1_000_000
    assert by_model[MODEL].shard_metadata.model_card.n_layers == 8
    before = len(rig.told)
    await rig.room.inventory.refresh()
    assert len(rig.told) == before


async def test_a_model_that_vanished_is_no_longer_told_to_be_here(rig: Rig) -> None:
    gone = DownloadCompleted(
        node_id=NODE, shard_metadata=shard(card("org/gone")), total={"in_bytes": 1}
    )
    rig.state = State(downloads={NODE: [gone]})
    await rig.room.inventory.refresh()
    last = [e for e in rig.told if e.shard_metadata.model_card.model_id == "org/gone"]
    assert [type(entry) for entry in last] == [DownloadPending]


async def test_a_failure_stays_visible_until_somebody_tries_again(rig: Rig) -> None:
    failed = DownloadFailed(
        node_id=NODE, shard_metadata=shard(card(MODEL)), error_message="disk full"
    )
    rig.state = State(downloads={NODE: [failed]})
    await rig.room.inventory.refresh()
    assert MODEL not in [entry.shard_metadata.model_card.model_id for entry in rig.told]


# --- arithmetic ---


class Watch:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_meter(
    watch: Watch, told: list[DownloadProgress], total_bytes: int = 1000
) -> TransferProgress:
    return TransferProgress(
        DownloadEntry(NODE, shard(card(MODEL))), told.append, watch, total_bytes
    )


def last_data(told: list[DownloadProgress]) -> DownloadProgressData:
    entry = told[-1]
    assert isinstance(entry, DownloadOngoing)
    return entry.download_progress


def test_progress_tells_bytes_rate_and_time_left() -> None:
    watch, told = Watch(), []
    meter = a_meter(watch, told)
    job = CopyJob(total_bytes=1000, present_bytes=200, done_bytes=200)
    job.sizes, job.file_bytes = {"a": 400, "b": 600}, {"a": 200}
    meter.update_copy(job)
    watch.now += 2.0
    job.done_bytes, job.done_files, job.file_bytes = 600, 1, {"a": 400, "b": 200}
    meter.update_copy(job)
    data = last_data(told)
    assert (data.downloaded.in_bytes, data.total.in_bytes) == (600, 1000)
    assert data.downloaded_this_session.in_bytes == 400
    assert (data.speed, data.eta_ms) == (200.0, 2000)
    assert (data.completed_files, data.total_files) == (1, 2)
    assert list(data.files) == ["b"]
    json.loads(data.model_dump_json())


def test_the_total_is_told_as_soon_as_the_store_knows_it() -> None:
    watch, told = Watch(), []
    meter = a_meter(watch, told, total_bytes=15)
    job = CopyJob()
    meter.update_copy(job)
    assert last_data(told).total.in_bytes == 15, "what the card says, until then"
    watch.now += 0.25
    job.total_bytes, job.hashed = 6000, (1500, 6000)
    meter.update_copy(job)
    assert last_data(told).total.in_bytes == 6000
    assert meter.current().detail == "the store is computing checksums (25 %)"


def test_time_before_the_first_byte_does_not_count_for_the_rate() -> None:
    watch, told = Watch(), []
    meter = a_meter(watch, told)
    job = CopyJob(total_bytes=1000)
    for _ in range(40):
        meter.update_copy(job)
        watch.now += 1.0
    for _ in range(3):
        watch.now += 1.0
        job.done_bytes += 100
        meter.update_copy(job)
    assert meter.current().bytes_per_second == pytest.approx(75.0, rel=0.35)
    assert meter.current().seconds_left == pytest.approx(9.0, rel=0.35)


def test_a_transfer_that_stands_still_says_so_and_why() -> None:
    watch, told = Watch(), []
    meter = a_meter(watch, told)
    job = CopyJob(total_bytes=1000)
    job.add_bytes("a", 100)
    meter.update_copy(job)
    job.set_retrying("a: the connection broke (attempt 1 of 5 failed)")
    for _ in range(30):
        watch.now += 1.0
        meter.update_copy(job)
    shown = meter.current()
    assert (shown.idle_s, shown.bytes_per_second, shown.seconds_left) == (30.0, 0.0, None)
    assert shown.detail == "a: the connection broke (attempt 1 of 5 failed)"
    job.add_bytes("a", 1)
    meter.update_copy(job)
    assert (meter.current().idle_s, meter.current().detail) == (0.0, None)


def test_a_store_that_computes_checksums_does_not_stand_still() -> None:
    watch, told = Watch(), []
    meter = a_meter(watch, told)
    job = CopyJob(total_bytes=1000)
    for done in range(40):
        watch.now += 1.0
        job.hashed = (done, 1000)
        meter.update_copy(job)
    assert meter.current().idle_s == 0.0
    watch.now += 20.0
    meter.update_copy(job)
    assert meter.current().idle_s == 20.0


async def test_a_copy_stalls_when_its_store_is_silent_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "IDLE_S", 0.0)
    monkeypatch.setattr(store_calls, "PROBE_S", 0.1)
    release, healthy, asked = asyncio.Event(), asyncio.Event(), 0

    async def hangs(_request: web.Request) -> web.Response:
        await release.wait()
        return web.Response(status=404)

    async def health(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        await healthy.wait()
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_get("/{rest:.*}", hangs)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    rig = Rig(tmp_path, runner.addresses[0][1])
    rig.room.staging.on_stall = lambda: changes.append(rig.room.staging.stalled())
    changes: list[dict[ModelId, str]] = []
    bringing = asyncio.create_task(rig.room.staging.ensure(shard(card(MODEL))))
    await until(lambda: changes, "the copy to stall")
    assert "store host elsewhere does not respond: the store at http://127" in changes[0][MODEL]
    healthy.set()
    await until(lambda: len(changes) == 2, "the store to answer")
    before = asked
    await until(lambda: asked > before + 2, "further questions")
    assert changes[1:] == [{}]
    assert not bringing.done()
    bringing.cancel()
    await asyncio.wait({bringing})
    release.set()
    await runner.cleanup()


async def test_progress_of_a_model_is_known_only_while_it_is_on_its_way(tmp_path: Path) -> None:
    slow = SlowStore()
    with fake_store(slow.manifest, slow.file) as store:
        rig = Rig(tmp_path, store.port)
        wanted = card("org/m")
        assert rig.room.staging.progress(wanted) is None
        staging = asyncio.create_task(rig.room.staging.ensure(shard(wanted)))
        await until(lambda: slow.asked, "the transfer")
        await until(
            lambda: (shown := rig.room.staging.progress(wanted)) and shown.done_bytes == 500,
            "the bytes that came",
        )
        shown = rig.room.staging.progress(wanted)
        assert shown is not None
        assert shown.total_bytes == len(slow.data)
        slow.finish()
        await staging
        assert rig.room.staging.progress(wanted) is None


def test_few_events_tell_of_a_long_transfer() -> None:
    throttle = Throttle()
    passed = [
        fraction
        for fraction in range(1000)
        if throttle.passes(now=fraction * 0.1, fraction=fraction / 1000)
    ]
    assert passed[0] == 0
    assert len(passed) <= 51
