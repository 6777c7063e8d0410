"""Readings of recorded Macs of five generations, none of which needs root."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skulkd.machine.collect import MachineMonitor, Readings
from skulkd.machine.identity import this_hardware
from skulkd.machine.mactop import MactopSample, parse_mactop
from skulkd.machine.metal import read_metal_limits
from skulkd.machine.tools import ToolError
from skulkd.machine.warnings import metal_warnings
from skulkd.placement.candidates import PlacementCandidate
from skulkd.wire.base import Memory
from skulkd.wire.ids import NodeId
from skulkd.wire.machine import MetalLimits
from tests.macs.kinds import GENERATIONS, M4_PRO_MINI, Kind
from tests.macs.recorded import Mac, Run, install, record
from tests.placement.builders import memory_of

GIB = 1024**3


@pytest.fixture(autouse=True)
def _another_machine() -> Iterator[None]:
    """What is asked once per process is asked anew."""
    this_hardware.cache_clear()
    yield
    this_hardware.cache_clear()


async def read_mac(mac: Mac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Readings:
    """A whole reading with this Mac's tools on PATH, slow tools included."""
    folder = install(tmp_path / "bin", record(mac, [mac], []))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin:/bin")
    monitor = MachineMonitor(name="kite1", models_dir=tmp_path, version="1", platform="darwin")
    async with asyncio.timeout(300):
        while True:
            found = await monitor.read()
            watts = found.system.sys_power if found.system else None
            if found.rdma is not None and (watts is not None) == mac.mactop:
                return found
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", GENERATIONS, ids=lambda kind: kind.identifier)
async def test_every_generation_is_read(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mac = Mac("a", kind, memory_gib=32, used_gib=9, mactop=True)
    found = await read_mac(mac, tmp_path, monkeypatch)
    assert found.warnings == ()
    assert found.identity is not None
    identity = (found.identity.model_id, found.identity.chip_id, found.identity.os_version)
    assert identity == (kind.name, kind.chip, "26.2")
    assert found.memory is not None
    assert found.memory.ram_total.in_bytes == 32 * GIB
    # 1 GiB is wired, 9 GiB are in use; what files occupy can be had.
    assert found.memory.ram_available.in_bytes == 22 * GIB
    assert found.wired == Memory.of(GIB)
    assert found.metal == MetalLimits(wired_limit=Memory.of(32 * GIB * 2 // 3), pressure="normal")
    assert found.system is not None
    gpu = found.system.accelerator
    assert gpu is not None
    assert (gpu.vendor, gpu.name, gpu.utilization_ratio) == ("apple", kind.chip, 0.37)
    assert (gpu.power_watts, gpu.temperature_celsius) == (9.25, 52.5)
    system = found.system
    assert (system.sys_power, system.temp, system.gpu_usage) == (41.5, 52.5, 37.0)
    assert (system.pcpu_usage, system.ecpu_usage) == (31.0, 12.5)


async def test_without_mactop_power_and_temperature_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await read_mac(Mac("a", M4_PRO_MINI), tmp_path, monkeypatch)
    assert found.system is not None
    assert found.system.accelerator is not None
    told = (found.system.sys_power, found.system.temp, found.system.accelerator.power_watts)
    assert told == (None, None, None)
    assert found.system.gpu_usage == 37.0
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("changes", "limit_gib", "is_default", "pressure"),
    [
        ({"memory_gib": 16}, 16 * 2 / 3, True, "normal"),
        ({"memory_gib": 64}, 48, True, "normal"),
        ({"memory_gib": 64, "wired_limit_mb": 57344}, 56, False, "normal"),
        ({"memory_gib": 64, "pressure": 4}, 48, True, "critical"),
        ({"memory_gib": 64, "pressure": 3}, 48, True, None),
    ],
)
def test_the_wired_limit_is_what_was_set_or_the_default(
    changes: dict[str, int],
    limit_gib: float,
    is_default: bool,
    pressure: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mac = Mac("a", M4_PRO_MINI, **changes)
    monkeypatch.setenv("PATH", str(install(tmp_path, record(mac, [mac], []))) + ":/usr/bin:/bin")
    found = read_metal_limits()
    assert found.wired_limit == Memory.of(int(limit_gib * GIB))
    assert (found.is_default, found.pressure) == (is_default, pressure)


def test_a_mac_without_the_key_has_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ("sysctl", "-n", "iogpu.wired_limit_mb")
    unknown = Run(key, "", 1, "sysctl: unknown oid 'iogpu.wired_limit_mb'")
    mac = Mac("a", M4_PRO_MINI, instead={key: unknown})
    monkeypatch.setenv("PATH", str(install(tmp_path, record(mac, [mac], []))) + ":/usr/bin:/bin")
    assert read_metal_limits() == MetalLimits(pressure="normal")


@pytest.mark.parametrize(
    ("limit_gib", "placed_gib", "command"),
    [
        (48, 40, None),
        (48, 50, "sudo sysctl iogpu.wired_limit_mb=51200 (until the next boot)"),
        (48, 62, "unload a model here: skulkctl delete"),
        (None, 62, None),
    ],
)
def test_a_limit_too_low_for_what_is_placed_is_warned_of_with_the_command(
    limit_gib: int | None, placed_gib: int, command: str | None
) -> None:
    limit = None if limit_gib is None else Memory.of(limit_gib * GIB)
    metal = MetalLimits(wired_limit=limit)
    found = list(metal_warnings(metal, memory_of(64), placed_gib * GIB))
    assert [warning.remediation for warning in found] == ([] if command is None else [command])
    if command is not None:
        told = "the GPU may wire 48.0 GiB (macOS's default), but the models placed here need"
        assert found[0].message == f"{told} {placed_gib}.0 GiB"


def test_critical_pressure_is_warned_of() -> None:
    [warning] = metal_warnings(MetalLimits(pressure="critical"), None, 0)
    assert warning.message.startswith("memory pressure is critical")


@pytest.mark.parametrize(
    ("limit_gib", "usable_gib", "pool"),
    [(None, 48, "75%"), (60, 48, "75%"), (40, 40, "the wired limit"), (8, 8, "the wired limit")],
)
def test_the_planner_does_not_promise_more_than_may_be_wired(
    limit_gib: int | None, usable_gib: int, pool: str
) -> None:
    limit = None if limit_gib is None else limit_gib * GIB
    budget = PlacementCandidate(NodeId("a"), memory_of(64), wired_limit_bytes=limit).budget
    assert budget is not None
    assert (budget.usable_bytes, budget.ceiling_bytes) == (usable_gib * GIB, usable_gib * GIB)
    assert pool in budget.pool


def test_lines_of_mactop_that_are_no_samples_are_skipped() -> None:
    text = '[{"soc_metrics":{"system_power":0,"gpu_temp":40.5}},\nnot json\n{"gpu_us'
    assert parse_mactop(text) == MactopSample(gpu_celsius=40.5)
    with pytest.raises(ToolError, match="mactop"):
        parse_mactop("no samples\n")
