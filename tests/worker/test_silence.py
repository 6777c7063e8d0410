"""Runners that hang, freeze or do not obey are ended from outside."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.wire.runners import RunnerReady
from skulkd.worker.options import RunnerTimeouts
from tests.worker.rig import (
    QUICK,
    is_running,
    read_all,
    ready,
    running,
    stand_in,
)


@pytest.mark.parametrize(
    ("boot", "cause"),
    [
        pytest.param("hang in warm-up", "StartWarmup not done within 1 s", id="warm-up"),
        pytest.param("fail and stay", "reported its end and did not end", id="does not leave"),
        pytest.param("refuse to load", "LoadModel failed: LoadModel does not fit", id="refuses"),
        pytest.param("deaf", "LoadModel not acknowledged within 1 s", id="never reads"),
    ],
)
async def test_a_start_that_hangs_is_ended_from_outside(
    tmp_path: Path, boot: str, cause: str
) -> None:
    async with running(tmp_path, stand_in(boot), QUICK) as rig:
        assert cause in await rig.fails(rig.place(), "killed by the supervisor")


async def test_a_runner_that_never_reports_is_ended(tmp_path: Path) -> None:
    options = replace(QUICK, timeouts=RunnerTimeouts(first_report_s=0.5, poll_s=0.1))
    async with running(tmp_path, stand_in("silent"), options) as rig:
        await rig.fails(rig.place(), "no report within 0.5 s")


async def test_a_stopped_process_with_a_request_is_killed_and_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in(), QUICK) as rig:
        instance_id = await ready(rig)
        pid = rig.record(instance_id).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        _, ended = await read_all(await rig.ask(instance_id, "say 1"))
        assert ended.retryable
        assert "within 1 s" in (ended.error_message or "")
        await rig.reaches(instance_id, RunnerReady)
        assert not is_running(pid)


async def test_a_request_without_progress_is_ended(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in(), QUICK) as rig:
        instance_id = await ready(rig)
        _, ended = await read_all(await rig.ask(instance_id, "hang"))
        assert "no progress for 1 s" in (ended.error_message or "")


async def test_a_runner_that_ignores_a_cancel_is_ended(tmp_path: Path) -> None:
    options = replace(QUICK, stream_bytes=2000)
    async with running(tmp_path, stand_in("obstinate"), options) as rig:
        instance_id = await ready(rig)
        stream = await rig.ask(instance_id, "flood")
        _, ended = await read_all(await rig.ask(instance_id, "hang"))
        assert "not cancelled within 1 s" in (ended.error_message or "")
        await stream.aclose()


async def test_a_runner_that_closes_its_pipe_and_stays_is_ended(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in(), QUICK) as rig:
        instance_id = await ready(rig)
        _, ended = await read_all(await rig.ask(instance_id, "close"))
        assert "closed its pipe" in (ended.error_message or "")
