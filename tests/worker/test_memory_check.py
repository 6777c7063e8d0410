"""The last look at the memory before loading, and what becomes of a shortage."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from skulkd.placement.memory import need_of
from skulkd.placement.promises import need_of_rank, promised_bytes
from skulkd.placement.shape import ModelDimensions
from skulkd.wire.base import Memory
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.instances import Instance, MlxRingInstance
from skulkd.wire.machine import AcceleratorMetrics, MemoryUsage
from skulkd.wire.placement_record import PlacementRecord
from skulkd.wire.runners import (
    MEMORY_GUARD,
    STAGING_FAILED,
    RunnerFailed,
    RunnerIdle,
    RunnerReady,
    obstacle,
)
from skulkd.wire.shards import PipelineShardMetadata, ShardAssignments
from skulkd.wire.state import State
from skulkd.worker.memory_check import shortage
from tests.worker.group_rig import OPTIONS, group_of, group_ready
from tests.worker.rig import MemoryLibrary, a_card, eventually, stand_in

GIB = 1024**3
CARD = a_card()


def memory(available: int, total: int = 1024 * GIB) -> MemoryUsage:
    return MemoryUsage(
        ram_total=Memory.of(total),
        ram_available=Memory.of(available),
        swap_total=Memory(),
        swap_available=Memory(),
    )


RUNNER = RunnerId("r")


def holding(shape: dict[str, int] | None = None) -> Instance:
    """An instance of one rank; its record knows what the files say."""
    shard = PipelineShardMetadata(
        model_card=CARD, device_rank=0, world_size=1, start_layer=0, end_layer=8, n_layers=8
    )
    node = NodeId("n")
    return MlxRingInstance(
        instance_id=InstanceId("i"),
        shard_assignments=ShardAssignments(
            model_id=CARD.model_id, runner_to_shard={RUNNER: shard}, node_to_runner={node: RUNNER}
        ),
        hosts_by_node={},
        ephemeral_port=1,
        record=None if shape is None else PlacementRecord(shape=shape),
    )


def test_on_a_gpu_its_own_memory_is_looked_at() -> None:
    need = need_of(CARD).total_bytes
    roomy = AcceleratorMetrics(vendor="nvidia", name="L4", vram_total_bytes=2 * need)
    assert shortage(holding(), RUNNER, roomy) is None
    full = roomy.model_copy(update={"vram_used_bytes": 2 * need - need // 2})
    short = shortage(holding(), RUNNER, full)
    assert short is not None
    assert short.startswith(MEMORY_GUARD)
    assert "the memory of L4 are available" in short


def test_only_more_than_the_tolerance_is_a_shortage() -> None:
    need = need_of(CARD, Fraction(1)).total_bytes
    instance = holding()
    assert shortage(instance, RUNNER, memory(need)) is None
    assert shortage(instance, RUNNER, memory(need * 10 // 11 + 1)) is None
    short = shortage(instance, RUNNER, memory(need * 10 // 11 - 1024**2))
    assert short is not None
    assert short.startswith("memory-guard: skulk/stand-in needs 0.")
    assert "usable are" in short
    # Never more than three quarters of the machine, whatever is free.
    assert shortage(instance, RUNNER, memory(GIB, total=need)) is not None


def test_planner_promises_and_guard_count_the_same_heads() -> None:
    """What was planned with the model's own heads must not be refused for heads of 128."""
    wide = holding({"head_dimension": 256 * 1024})
    planned = need_of(CARD, Fraction(1), ModelDimensions(head_dimension=256 * 1024)).total_bytes
    assert planned > 2 * need_of(CARD, Fraction(1)).total_bytes, "heads must matter here"
    assert need_of_rank(wide, RUNNER).total_bytes == planned
    state = State(instances={wide.instance_id: wide})
    assert promised_bytes(state) == {NodeId("n"): planned}
    assert shortage(wide, RUNNER, memory(planned)) is None
    assert shortage(wide, RUNNER, memory(planned // 2)) is not None
    assert shortage(holding(), RUNNER, memory(planned // 2)) is None


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (None, None),
        (RunnerIdle(), None),
        (RunnerFailed(), None),
        (RunnerFailed(error_message="Terminated (signal=9)"), None),
        (RunnerFailed(error_message="Not started: memory-guard: too big"), MEMORY_GUARD),
        (RunnerFailed(error_message="Not started: staging-failed: gone. Not"), STAGING_FAILED),
        (
            RunnerFailed(error_message="Terminated (exitcode=1): " + "x" * 60 + "memory-guard: "),
            None,
        ),
    ],
)
def test_an_obstacle_is_found_in_the_status(status: RunnerFailed | None, found: str | None) -> None:
    assert obstacle(status) == found


async def test_a_rank_without_memory_says_so_and_no_rank_starts(tmp_path: Path) -> None:
    quick = replace(OPTIONS, timeouts=replace(OPTIONS.timeouts, memory_s=0))
    async with group_of(tmp_path, [stand_in()] * 2, quick, memory=lambda: memory(1)) as rig:
        rig.place()
        await eventually(
            lambda: [obstacle(status) for status in rig.statuses()] == [MEMORY_GUARD] * 2,
            "both ranks to refuse",
        )
        assert not rig.live_pids()


async def test_memory_that_is_being_freed_is_waited_for(tmp_path: Path) -> None:
    readings = [memory(1), memory(1), memory(1)]

    def freed() -> MemoryUsage:
        return readings.pop() if readings else memory(64 * GIB)

    patient = replace(OPTIONS, timeouts=replace(OPTIONS.timeouts, memory_s=3600))
    async with group_of(tmp_path, [stand_in()] * 2, patient, memory=freed) as rig:
        await group_ready(rig)
        assert not readings


async def test_a_rank_without_files_says_so(tmp_path: Path) -> None:
    library = MemoryLibrary(paths={}, problems={})
    async with group_of(tmp_path, [stand_in()] * 2, library=library) as rig:
        rig.place()
        reason = await rig.fails("has no files on this node")
        assert obstacle(RunnerFailed(error_message=reason)) == STAGING_FAILED
        assert not any(isinstance(status, RunnerReady) for status in rig.statuses())
