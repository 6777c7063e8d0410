"""The monitor: every reading off the loop, with a deadline, never twice at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skulkd.machine.accelerator import AcceleratorReading
from skulkd.machine.collect import DEADLINES_S, MachineMonitor
from skulkd.machine.flight import Collector
from skulkd.wire.machine import AcceleratorMetrics, NodeIdentity
from skulkd.wire.rdma import NodeRdma

from .conftest import StartChild, wait_until


class Gate:
    """A reading that waits until the test opens it, and counts how often it was started."""

    def __init__(self) -> None:
        self.started = 0
        self.open = threading.Event()

    def __call__(self) -> Any:
        self.started += 1
        self.open.wait(300)
        return f"answer {self.started}"


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def _monitor(tmp_path: Path, **more: Any) -> MachineMonitor:
    return MachineMonitor(name="kite1", models_dir=tmp_path / "models", version="1.2.3", **more)


async def test_everything_is_read_on_this_machine(tmp_path: Path) -> None:
    monitor = _monitor(tmp_path)
    readings = await monitor.read()
    assert readings.warnings == ()
    assert readings.memory is not None
    assert readings.disk is not None
    assert (
        readings.disk.total.in_bytes
        == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    )
    assert readings.system is not None
    assert readings.system.accelerator is not None
    assert readings.network is not None
    assert readings.identity is not None
    assert (readings.identity.friendly_name, readings.identity.skulk_version) == ("kite1", "1.2.3")
    now = await monitor.read_memory_now()
    assert now.memory is not None
    assert now.memory.ram_total == readings.memory.ram_total
    monitor.close()


async def test_processes_are_read_with_the_runners_of_the_caller(
    tmp_path: Path, start_child: StartChild
) -> None:
    child = start_child("sleep", "600")
    monitor = _monitor(tmp_path)
    processes, warnings = await monitor.read_processes(frozenset({child.pid}))
    roles = {process.pid: process.role for process in processes}
    assert roles[os.getpid()] == "skulk"
    assert roles[child.pid] == "runner"
    assert warnings == ()
    processes, _ = await monitor.read_processes(frozenset())
    assert {process.pid: process.role for process in processes}[child.pid] == "other"


async def test_failing_reading_is_null_with_a_warning_and_the_rest_is_there(tmp_path: Path) -> None:
    def fail() -> Any:
        raise OSError("disk fell off, token=hunter2secret")

    readings = await _monitor(tmp_path, collectors={"disk": fail}).read()
    assert readings.disk is None
    assert readings.warnings == ("disk: disk fell off, token=***",)
    assert readings.memory is not None
    assert readings.identity is not None


async def test_failing_accelerator_leaves_the_rest_of_the_system(tmp_path: Path) -> None:
    def fail() -> Any:
        raise ValueError

    readings = await _monitor(tmp_path, collectors={"accelerator": fail}).read()
    assert readings.system is not None
    assert (readings.system.accelerator, readings.system.gpu_usage) == (None, None)
    assert readings.warnings == ("accelerator: ValueError",)


async def test_accelerator_use_is_in_the_system_profile(tmp_path: Path) -> None:
    gpu = AcceleratorMetrics(vendor="nvidia", name="T4", utilization_ratio=0.5)
    readings = await _monitor(
        tmp_path, collectors={"accelerator": lambda: AcceleratorReading(gpu)}
    ).read()
    assert readings.system is not None
    assert (readings.system.accelerator, readings.system.gpu_usage) == (gpu, 50.0)


async def test_hung_reading_is_started_once_and_its_start_is_told(
    tmp_path: Path, gate: Gate
) -> None:
    monitor = _monitor(tmp_path, collectors={"disk": gate}, deadlines={"disk": 0.1})
    first = await monitor.read()
    second = await monitor.read()
    assert (first.disk, second.disk, gate.started) == (None, None, 1)
    assert first.memory is not None
    [warning] = second.warnings
    assert warning.startswith("disk: no answer within 0.1 s, waiting since 20")
    assert first.warnings == second.warnings


async def test_hung_processes_give_an_empty_list_and_a_warning(tmp_path: Path, gate: Gate) -> None:
    monitor = _monitor(tmp_path, collectors={"processes": gate}, deadlines={"processes": 0.1})
    processes, warnings = await monitor.read_processes(frozenset())
    assert processes == ()
    assert [warning.split(",")[0] for warning in warnings] == ["processes: no answer within 0.1 s"]


async def test_event_loop_runs_while_a_reading_blocks(tmp_path: Path, gate: Gate) -> None:
    monitor = _monitor(tmp_path, collectors={"disk": gate})
    reading = asyncio.create_task(monitor.read())
    await asyncio.to_thread(wait_until, lambda: gate.started == 1, "the reading started")
    # Only a loop that is free gets here to open the gate.
    gate.open.set()
    readings = await reading
    assert (str(readings.disk), readings.warnings) == ("answer 1", ())


async def test_identity_is_read_again_only_after_a_minute(tmp_path: Path) -> None:
    now = [1000.0]
    versions = iter(range(100))

    def read() -> NodeIdentity:
        return NodeIdentity(os_version=str(next(versions)))

    monitor = _monitor(tmp_path, collectors={"identity": read}, clock=lambda: now[0])
    seen = []
    for moment in (1000.0, 1059.0, 1060.5, 1100.0):
        now[0] = moment
        identity = (await monitor.read()).identity
        assert identity is not None
        seen.append(identity.os_version)
    assert seen == ["0", "0", "1", "1"]


async def test_two_askers_share_one_reading(gate: Gate) -> None:
    collector = Collector("x", gate, deadline_s=60)
    askers = [asyncio.create_task(collector.ask()) for _ in range(2)]
    await asyncio.to_thread(wait_until, lambda: gate.started == 1, "the reading started")
    gate.open.set()
    assert [outcome.value for outcome in await asyncio.gather(*askers)] == ["answer 1"] * 2
    assert gate.started == 1


async def test_late_answer_serves_the_next_question_of_a_kept_reading(gate: Gate) -> None:
    collector = Collector("x", gate, deadline_s=0.05, refresh_s=1000)
    assert (await collector.ask()).problem is not None
    gate.open.set()
    for _ in range(1000):
        outcome = await collector.ask()
        if outcome.problem is None:
            break
        await asyncio.sleep(0.01)
    assert (outcome.value, gate.started) == ("answer 1", 1)


async def test_reading_without_memory_starts_anew_after_a_hang(gate: Gate) -> None:
    collector = Collector("x", gate, deadline_s=0.05)
    assert (await collector.ask()).problem is not None
    gate.open.set()
    for _ in range(1000):
        outcome = await collector.ask()
        if outcome.value == "answer 2":
            break
        await asyncio.sleep(0.01)
    assert outcome.value == "answer 2"


async def test_asking_after_the_deadline_does_not_wait_again(gate: Gate) -> None:
    now = [0.0]
    collector = Collector("x", gate, deadline_s=1000, clock=lambda: now[0])
    asker = asyncio.create_task(collector.ask())
    await asyncio.to_thread(wait_until, lambda: gate.started == 1, "the reading started")
    now[0] = 1001.0
    # A second wait of a thousand seconds would end the test run, not this line.
    problem = (await collector.ask()).problem
    assert problem is not None
    assert "no answer within 1000 s" in problem
    gate.open.set()
    assert (await asker).value == "answer 1"


async def test_asker_that_is_cancelled_does_not_stop_the_reading(gate: Gate) -> None:
    collector = Collector("x", gate, deadline_s=60, refresh_s=1000)
    asker = asyncio.create_task(collector.ask())
    await asyncio.to_thread(wait_until, lambda: gate.started == 1, "the reading started")
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    gate.open.set()
    assert (await collector.ask()).value == "answer 1"


async def test_slow_tools_delay_nobody_and_their_answer_comes_with_a_later_reading(
    tmp_path: Path, gate: Gate
) -> None:
    monitor = _monitor(tmp_path, collectors={"rdma": lambda: NodeRdma(problems=[gate()])})
    first = await monitor.read()
    second = await monitor.read()
    assert (first.rdma, second.rdma, gate.started) == (None, None, 1)
    assert first.memory is not None
    gate.open.set()
    async with asyncio.timeout(300):
        # Each reading takes other tools some time, so this does not spin.
        while (found := await monitor.read()).rdma is None:
            continue
    assert (found.warnings, gate.started) == (("rdma: answer 1",), 1)


def test_every_reading_has_a_deadline(tmp_path: Path) -> None:
    assert set(DEADLINES_S) == {
        "memory", "disk", "system", "accelerator", "network", "identity", "processes",
        "mactop", "metal", "rdma",
    }  # fmt: skip
    assert all(limit > 0 for limit in DEADLINES_S.values())


HANGING_PROGRAM = """
import asyncio, sys, threading
from pathlib import Path
from skulkd.machine.collect import MachineMonitor

async def main():
    monitor = MachineMonitor(
        name="x", models_dir=Path("."), version="0",
        deadlines={"disk": 0.1}, collectors={"disk": threading.Event().wait},
    )
    readings = await monitor.read()
    monitor.close()
    print(readings.disk, readings.memory is not None)

asyncio.run(main())
"""


def test_process_ends_although_a_reading_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HANGING_PROGRAM],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("None True\n", "", 0)
