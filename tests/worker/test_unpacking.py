"""A runner unpacks its weights when that was planned and its node still has the room."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skulkd.placement.built import place
from skulkd.placement.candidates import PlacementCandidate
from skulkd.placement.fresh import make_fresh
from skulkd.placement.memory import need_of
from skulkd.placement.promises import need_of_rank
from skulkd.placement.records import record_of
from skulkd.placement.wish import Wish
from skulkd.wire.base import Memory
from skulkd.wire.instances import Instance
from skulkd.wire.machine import MemoryUsage
from skulkd.worker.diagnostics import WaitStatus
from skulkd.worker.launch import CannotLaunch, Launcher
from skulkd.worker.model_files import LibraryFiles
from tests.worker.rig import NODE, QUICK, MemoryLibrary, a_card

GIB = 1024**3
CARD = a_card().model_copy(
    update={"storage_size": Memory.of(GIB), "quantization": "4bit", "context_length": 8192}
)


def memory(available: int) -> MemoryUsage:
    none = Memory()
    return MemoryUsage(
        ram_total=Memory.of(1024 * GIB),
        ram_available=Memory.of(available),
        swap_total=none,
        swap_available=none,
    )


def placed(free: int, mode: Any = "auto") -> Instance:
    node = PlacementCandidate(NODE, memory(free), dequantize=mode)
    return place(Wish(CARD), [node], make_fresh(1))


UNPACKED = placed(512 * GIB)
[RUNNER] = UNPACKED.shard_assignments.runner_to_shard
NEED = need_of_rank(UNPACKED, RUNNER).total_bytes
STORED = need_of(CARD).total_bytes


async def prepared(instance: Instance, free: int, tmp_path: Path, mode: Any = "auto") -> bool:
    """Whether its runner is told to unpack."""
    [runner] = instance.shard_assignments.runner_to_shard
    options = replace(QUICK, dequantize=mode, timeouts=replace(QUICK.timeouts, memory_s=0))
    launcher = Launcher(
        NODE,
        LibraryFiles(MemoryLibrary(), 60),
        lambda: memory(free),
        None,
        tmp_path,
        options,
        {},
    )
    found = await launcher.prepare(instance, runner, WaitStatus(time.monotonic))
    return found.configure.options.float32


@pytest.mark.parametrize(
    ("planned_with", "mode"),
    [(NEED + 1, "auto"), (NEED, "auto"), (NEED + 1, "on"), (NEED, "on"), (512 * GIB, "off")],
)
async def test_the_worker_does_what_was_planned(
    tmp_path: Path, planned_with: int, mode: str
) -> None:
    instance = placed(planned_with, mode)
    expected = record_of(instance).unpacked
    assert expected is (planned_with > NEED and mode != "off")
    assert await prepared(instance, planned_with, tmp_path, mode) is expected
    # More memory than was planned with changes nothing: other ranks were planned with it, too.
    assert await prepared(instance, 512 * GIB, tmp_path, mode) is expected


async def test_without_the_room_the_weights_stay_packed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert NEED > 2 * STORED
    with caplog.at_level(logging.WARNING):
        assert not await prepared(UNPACKED, STORED, tmp_path)
    assert "weights stay packed" in caplog.text
    with pytest.raises(CannotLaunch, match="memory-guard"):
        await prepared(UNPACKED, STORED // 2, tmp_path)


async def test_a_node_that_was_set_to_off_since_does_not_unpack(tmp_path: Path) -> None:
    assert not await prepared(UNPACKED, 512 * GIB, tmp_path, "off")
    assert not await prepared(UNPACKED, STORED, tmp_path, "off"), "only the stored size is needed"


async def test_on_that_does_not_fit_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert not await prepared(placed(NEED, "on"), 512 * GIB, tmp_path, "on")
    assert "runtime.dequantize is on here, but the weights of skulk/stand-in" in caplog.text
