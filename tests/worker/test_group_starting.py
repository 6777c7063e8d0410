"""Ranks that end in the middle of starting: nothing of the attempt is left, and the next serves."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from skulkd.wire.runners import (
    RunnerConnecting,
    RunnerLoading,
    RunnerStatus,
    RunnerWarmingUp,
)
from tests.worker.group_rig import group_of
from tests.worker.rig import eventually, is_running, log_text, read_all, stand_in, stand_ins

PHASES = [
    pytest.param("hang in connect", RunnerConnecting, id="connecting"),
    pytest.param("hang in load", RunnerLoading, id="loading"),
    pytest.param("hang in warm-up", RunnerWarmingUp, id="warming up"),
]
SIGNALS = [
    pytest.param(signal.SIGKILL, "signal=9 (SIGKILL)", id="killed"),
    pytest.param(signal.SIGSTOP, "stopped by a signal", id="frozen"),
]


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(("boot", "status"), PHASES)
@pytest.mark.parametrize(("number", "cause"), SIGNALS)
async def test_a_rank_that_ends_while_starting(
    tmp_path: Path,
    victim: int,
    boot: str,
    status: type[RunnerStatus],
    number: int,
    cause: str,
) -> None:
    spawns = [stand_in(), stand_in()]
    spawns[victim] = stand_ins(tmp_path / "boots", boot, "well")
    async with group_of(tmp_path, spawns) as rig:
        instance_id = rig.place()
        await rig.rank_reaches(victim, status)
        old = rig.live_pids()
        os.kill(rig.pid(victim), number)
        await rig.fails(f"rank {victim} on node-{victim}: {cause}")
        await rig.served_again(old)
        assert not any(is_running(pid) for pid in old)
        assert (await read_all(await rig.ask(instance_id, "say 1")))[0] == "0 "


@pytest.mark.parametrize("boot", ["crash in connect", "lost in connect", "crash in load"])
async def test_a_rank_that_gives_up_while_starting(tmp_path: Path, boot: str) -> None:
    spawns = [stand_ins(tmp_path / "0", "well"), stand_ins(tmp_path / "1", boot, "well")]
    async with group_of(tmp_path, spawns) as rig:
        instance_id = rig.place()
        await rig.all_serve()
        assert (await read_all(await rig.ask(instance_id, "say 1")))[0] == "0 "
        assert log_text(tmp_path / "node-1").count("boots") == 2


@pytest.mark.parametrize(("boot", "status"), PHASES)
async def test_a_delete_while_starting_leaves_nothing(
    tmp_path: Path, boot: str, status: type[RunnerStatus]
) -> None:
    spawns = [stand_ins(tmp_path / f"boots-{rank}", boot) for rank in (0, 1)]
    async with group_of(tmp_path, spawns) as rig:
        instance_id = rig.place()
        await rig.rank_reaches(0, status)
        old = rig.live_pids()
        rig.delete(instance_id)
        await eventually(
            lambda: not any(worker.diagnostics() for worker in rig.workers), "all to be gone"
        )
        assert not any(is_running(pid) for pid in old)
        assert not rig.live_pids()
