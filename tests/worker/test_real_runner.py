"""The worker with real runners: MLX, the generated tiny model, real signals."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from skulkd.runner.zygote_client import Zygote
from skulkd.settings.paths import find_paths
from skulkd.store.cards.toml import card_from_toml
from skulkd.store.imports.tiny_model import TINY_MODEL_ID, make_tiny_model
from skulkd.store.library import ModelLibrary
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import InstanceId, ModelId
from skulkd.wire.runners import RunnerReady
from skulkd.worker.forking import ForkingSpawn
from skulkd.worker.options import RunnerTimeouts, WorkerOptions
from skulkd.worker.process import Spawn, spawn_runner
from skulkd.worker.task_stream import TaskStream
from tests.worker.rig import (
    PATIENT,
    MemoryLibrary,
    Rig,
    eventually,
    first_text,
    is_running,
    log_text,
    read_all,
    running,
    within,
)

MODEL = ModelId(TINY_MODEL_ID)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the tiny model in it."""
    home = tmp_path_factory.mktemp("home")
    make_tiny_model(home / "models")
    return home


def library_of(home: Path) -> ModelLibrary:
    return ModelLibrary(find_paths({"SKULK_HOME": str(home), "HOME": str(home)}), {})


def card_of(home: Path) -> ModelCard:
    path = library_of(home).find(MODEL)
    assert path is not None
    return card_from_toml((path / "card.toml").read_text(), "card.toml")


@pytest.fixture
async def forking() -> AsyncIterator[ForkingSpawn]:
    if not Zygote.supported():
        pytest.skip("forking is for Linux")
    spawn = ForkingSpawn()
    yield spawn
    await spawn.close()


@asynccontextmanager
async def serving(
    home: Path, log_dir: Path, options: WorkerOptions = PATIENT, spawn: Spawn = spawn_runner
) -> AsyncIterator[tuple[Rig, InstanceId]]:
    environ = {**os.environ, "MLX_DISABLE_COMPILE": "1"}
    async with running(log_dir, spawn, options, library_of(home), environ) as rig:
        instance_id = rig.place(card_of(home))
        await rig.reaches(instance_id, RunnerReady)
        yield rig, instance_id


async def ask(rig: Rig, instance_id: InstanceId, **params: Any) -> TaskStream:
    return await rig.ask(instance_id, "hello", model=MODEL, temperature=0.0, **params)


async def test_a_killed_runner_fails_its_answer_by_name_and_answers_again(
    home: Path, tmp_path: Path
) -> None:
    async with serving(home, tmp_path) as (rig, instance_id):
        before, ended = await read_all(await ask(rig, instance_id, max_output_tokens=8))
        assert ended.status == "Complete"
        assert ended.usage is not None
        assert ended.usage.completion_tokens == 8
        assert ended.stats is not None
        stream = await ask(rig, instance_id, max_output_tokens=3000)
        await first_text(stream)
        pid = rig.record(instance_id).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        _, ended = await read_all(stream)
        assert ended.retryable
        assert "signal=9 (SIGKILL), during decode_stream" in (ended.error_message or "")
        assert MODEL in (ended.error_message or "")
        await rig.reaches(instance_id, RunnerReady)
        assert rig.record(instance_id).pid != pid
        after, _ = await read_all(await ask(rig, instance_id, max_output_tokens=8))
        assert after == before


async def test_a_frozen_runner_is_replaced(home: Path, tmp_path: Path) -> None:
    options = replace(PATIENT, timeouts=RunnerTimeouts(stopped_s=0.5, poll_s=0.1))
    async with serving(home, tmp_path, options) as (rig, instance_id):
        stream = await ask(rig, instance_id, max_output_tokens=3000)
        await first_text(stream)
        pid = rig.record(instance_id).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        _, ended = await read_all(stream)
        assert "stopped by a signal; killed by the supervisor" in (ended.error_message or "")
        assert ended.retryable
        assert not is_running(pid)
        await rig.reaches(instance_id, RunnerReady)


async def test_a_cancelled_answer_ends_and_stopping_leaves_no_process(
    home: Path, tmp_path: Path
) -> None:
    async with serving(home, tmp_path) as (rig, instance_id):
        stream = await ask(rig, instance_id, max_output_tokens=3000)
        await first_text(stream)
        assert rig.worker.cancel(stream.task_id) == "cancel_requested"
        _, ended = await read_all(stream)
        assert ended.status == "Cancelled"
        await eventually(
            lambda: rig.record(instance_id).status_kind == "RunnerReady", "the runner to be ready"
        )
        record = rig.record(instance_id)
        assert record.active_task_id is None
        assert record.last_mlx_memory is not None
        assert [m.detail for m in record.milestones if m.name == "status_changed"][:4] == [
            "RunnerLoading",
            "RunnerLoaded",
            "RunnerWarmingUp",
            "RunnerReady",
        ]
        await first_text(await ask(rig, instance_id, max_output_tokens=3000))
        pids = rig.worker.runner_pids()
        await within(rig.worker.stop())
        assert len(pids) == 1
        assert not any(is_running(pid) for pid in pids)
        assert "exit code 0" in log_text(tmp_path)


async def test_a_forked_runner_is_killed_replaced_and_stopped_like_any_other(
    home: Path, tmp_path: Path, forking: ForkingSpawn
) -> None:
    async with serving(home, tmp_path, spawn=forking) as (rig, instance_id):
        stream = await ask(rig, instance_id, max_output_tokens=3000)
        await first_text(stream)
        (first,) = rig.worker.runner_pids()
        os.kill(first, signal.SIGKILL)
        _, ended = await read_all(stream)
        assert "signal=9 (SIGKILL), during decode_stream" in (ended.error_message or "")
        await rig.reaches(instance_id, RunnerReady)
        (second,) = rig.worker.runner_pids()
        assert parent_of(first) is None
        assert parent_of(second) != os.getpid()
        assert (await read_all(await ask(rig, instance_id, max_output_tokens=4)))[0]
        await within(rig.worker.stop())
        assert not is_running(second)
        assert "exit code 0" in log_text(tmp_path)


async def test_runners_are_started_the_slow_way_when_forking_does_not_work(
    home: Path, tmp_path: Path, forking: ForkingSpawn
) -> None:
    async with serving(home, tmp_path, spawn=forking) as (rig, instance_id):
        (pid,) = rig.worker.runner_pids()
        zygote = parent_of(pid)
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        await eventually(lambda: pid not in rig.worker.runner_pids(), "the runner to die with it")
        await rig.reaches(instance_id, RunnerReady)
        (pid,) = rig.worker.runner_pids()
        assert parent_of(pid) == os.getpid()


async def test_a_frozen_zygote_costs_neither_a_stop_nor_a_start(
    home: Path, tmp_path: Path, forking: ForkingSpawn
) -> None:
    async with serving(home, tmp_path, spawn=forking) as (rig, instance_id):
        (first,) = rig.worker.runner_pids()
        zygote = parent_of(first)
        assert zygote is not None
        os.kill(zygote, signal.SIGSTOP)
        try:
            os.kill(first, signal.SIGKILL)
            await eventually(
                lambda: rig.worker.runner_pids() - {first}, "another runner, not from the zygote"
            )
            await rig.reaches(instance_id, RunnerReady)
            (second,) = rig.worker.runner_pids()
            assert parent_of(second) == os.getpid()
        finally:
            os.kill(zygote, signal.SIGCONT)


async def test_a_worker_that_stops_while_its_zygote_starts_leaves_none(tmp_path: Path) -> None:
    if not Zygote.supported():
        pytest.skip("forking is for Linux")
    async with running(tmp_path, None) as rig:
        children = psutil.Process().children
        others = set(children())  # of other tests in this process
        rig.place()
        zygote = await eventually(
            lambda: [
                child
                for child in children()
                if child not in others and "skulkd.runner.zygote" in child.cmdline()
            ],
            "a zygote",
        )
        await within(rig.worker.stop())
        assert not any(is_running(process.pid) for process in zygote)


def parent_of(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return None


@pytest.fixture
def cut_off(home: Path, tmp_path: Path) -> Path:
    """A home whose model has lost the end of its weights."""
    other = tmp_path / "home"
    shutil.copytree(home, other)
    (weights,) = (other / "models").glob("*/model.safetensors")
    os.truncate(weights, weights.stat().st_size // 2)
    return other


async def test_damaged_weights_are_named_without_starting_a_process(
    home: Path, cut_off: Path, tmp_path: Path
) -> None:
    async with running(tmp_path / "logs", spawn_runner, library=library_of(cut_off)) as rig:
        instance_id = rig.place(card_of(home))
        reason = await rig.fails(instance_id, "would not help")
        assert "model.safetensors" in reason
        assert rig.record(instance_id).pid is None


async def test_weights_damaged_behind_the_librarys_back_are_named_by_the_runner(
    home: Path, cut_off: Path, tmp_path: Path
) -> None:
    (path,) = (cut_off / "models").iterdir()
    library = MemoryLibrary(paths={MODEL: path})
    async with running(tmp_path / "logs", spawn_runner, library=library) as rig:
        instance_id = rig.place(card_of(home))
        reason = await rig.fails(instance_id, "would not help")
        assert "exitcode=65" in reason
        assert "model.safetensors" in reason
        assert rig.worker.runner_pids() == frozenset()
