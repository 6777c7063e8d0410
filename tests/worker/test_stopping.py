"""Stopping: ask, SIGTERM, SIGKILL; nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from skulkd.wire.ids import NodeId
from skulkd.wire.runners import RunnerReady
from skulkd.worker.options import LogLimits
from skulkd.worker.process import Launch
from skulkd.worker.refusals import NoSuchInstance
from tests.worker.rig import (
    QUICK,
    an_instance,
    eventually,
    first_text,
    is_running,
    log_text,
    read_all,
    ready,
    running,
    stand_in,
    within,
)


@pytest.mark.parametrize(
    ("boot", "last_words"),
    [
        pytest.param("", "shut down as asked", id="asked"),
        pytest.param("ignore shutdown", "SIGTERM obeyed", id="terminated"),
        pytest.param("ignore SIGTERM", "SIGTERM ignored", id="killed"),
    ],
)
async def test_deleting_an_instance_ends_its_process_one_way_or_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, boot: str, last_words: str
) -> None:
    async with running(tmp_path, stand_in(boot), QUICK) as rig:
        instance_id = await ready(rig)
        (pid,) = rig.worker.runner_pids()
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)
        rig.delete(instance_id)
        _, ended = await read_all(stream)
        assert (ended.status, ended.error_type) == ("Cancelled", "instance_deleted")
        await eventually(lambda: not rig.worker.diagnostics(), "the runner to be forgotten")
        assert not is_running(pid)
        assert log_text(tmp_path).splitlines()[-1] == last_words
        assert "does not end" not in caplog.text


async def test_an_instance_that_is_elsewhere_now_can_be_asked_again(tmp_path: Path) -> None:
    """Clusters that met have kept the other copy; who asked this one is not told "deleted"."""
    async with running(tmp_path, stand_in(), QUICK) as rig:
        instance_id = await ready(rig)
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)
        copy = an_instance(node_id=NodeId("node-elsewhere"))
        kept = copy.model_copy(update={"instance_id": instance_id})
        state = rig.replica.state.model_copy(update={"instances": {instance_id: kept}})
        rig.replica.replace(state)
        rig.worker.notify()
        _, ended = await read_all(stream)
        assert ended.error_type == "instance_lost"
        assert ended.retryable


async def test_stopping_the_worker_leaves_no_process(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in(), QUICK) as rig:
        one, other = rig.place(), rig.place()
        await rig.reaches(one, RunnerReady)
        await rig.reaches(other, RunnerReady)
        pids = rig.worker.runner_pids()
        stream = await rig.ask(one, "hang")
        await first_text(stream)
        await within(rig.worker.stop())
        assert len(pids) == 2
        assert not any(is_running(pid) for pid in pids)
        _, ended = await read_all(stream)
        assert (ended.status, ended.error_type) == ("Failed", "node_stopping")
        assert rig.replica.state.runners == {}
        with pytest.raises(NoSuchInstance):
            await rig.ask(one, "say 1")


async def test_stopping_while_runners_start_leaves_no_process(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in("silent"), QUICK) as rig:
        instance_id = rig.place()
        await eventually(rig.worker.diagnostics, "the slot")
        await within(rig.worker.stop())
        assert rig.worker.runner_pids() == frozenset()
        assert rig.status(instance_id) is None


async def test_a_worker_that_is_cancelled_takes_its_runners_along(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with running(tmp_path, stand_in("deaf")) as rig:
        rig.place()
        (pid,) = await eventually(rig.worker.runner_pids, "a process")
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await eventually(lambda: not is_running(pid), "the runner to end")


@pytest.mark.parametrize("turns", range(12))
async def test_a_start_that_is_cancelled_leaves_nothing_open(tmp_path: Path, turns: int) -> None:
    """However far it came: each turn of the loop is a step of the start."""
    launch = Launch(os.environ, tmp_path / "runner-a.log", LogLimits())
    before = open_files()
    start = asyncio.ensure_future(stand_in("deaf")(launch))
    for _ in range(turns):
        await asyncio.sleep(0)
    start.cancel()
    await asyncio.wait({start})
    if not start.cancelled():
        process = start.result()
        process.send_signal(signal.SIGKILL)
        await within(process.exited())
        process.close()
    await eventually(lambda: open_files() == before, "pipes to be closed")


def open_files() -> int:
    return psutil.Process().num_fds()
