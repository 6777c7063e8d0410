"""CPU use, temperature and power: this machine and pretended sensors."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.machine.sensors import PowerMeter, find_sensors, read_celsius
from skulkd.machine.system import SystemReader, busy_percent, with_accelerator
from skulkd.wire.machine import AcceleratorMetrics, SystemPerformanceProfile

from .conftest import Tree, wait_until


@pytest.mark.parametrize(
    ("spent", "expected"),
    [
        ({"user": 1.0, "system": 1.0, "idle": 2.0}, 50.0),
        ({"user": 1.0, "idle": 2.0, "iowait": 1.0}, 25.0),
        # Guest time is part of user time already.
        ({"user": 1.0, "guest": 1.0, "idle": 1.0}, 50.0),
        ({"user": 0.0, "idle": 3.0}, 0.0),
        ({"user": 0.0, "idle": 0.0}, None),
    ],
)
def test_busy_percent(spent: dict[str, float], expected: float | None) -> None:
    before = dict.fromkeys(spent, 100.0)
    after = {key: 100.0 + value for key, value in spent.items()}
    assert busy_percent(before, after) == expected


_clocks = st.fixed_dictionaries(
    {key: st.floats(0, 1e9) for key in ("user", "system", "idle", "iowait", "guest")}
)


@settings(deadline=None)
@given(before=_clocks, after=_clocks)
def test_busy_percent_is_a_percentage_even_when_clocks_run_backwards(
    before: dict[str, float], after: dict[str, float]
) -> None:
    percent = busy_percent(before, after)
    assert percent is None or 0 <= percent <= 100


def test_first_real_reading_has_no_cpu_percent_and_a_later_busy_one_has() -> None:
    reader = SystemReader()
    assert reader().pcpu_usage is None

    def busy() -> bool:
        end = time.process_time() + 0.2
        while time.process_time() < end:
            sum(range(1000))
        return (reader().pcpu_usage or 0.0) > 5.0

    wait_until(busy, "this machine is seen busy")


def test_reading_again_at_once_repeats_the_last_measurement() -> None:
    moments = iter([0.0, 10.0, 10.01])
    reader = SystemReader(clock=lambda: next(moments))
    reader()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        sum(range(1000))
    measured = reader().pcpu_usage
    assert measured is not None
    assert reader().pcpu_usage == measured


def test_nothing_measured_is_null_and_never_zero(tmp_path: Path) -> None:
    profile = SystemReader(tmp_path)()
    assert set(profile.model_dump().values()) == {None}


def test_accelerator_ratio_becomes_percent() -> None:
    base = SystemPerformanceProfile(gpu_usage=None, pcpu_usage=3.0)
    gpu = AcceleratorMetrics(vendor="nvidia", name="T4", utilization_ratio=0.125)
    assert with_accelerator(base, gpu).gpu_usage == 12.5
    assert with_accelerator(base, gpu).accelerator == gpu
    unmeasured = AcceleratorMetrics(vendor="cpu", name="x")
    assert with_accelerator(base, unmeasured).gpu_usage is None
    assert with_accelerator(base, None).gpu_usage is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {
                "sys/class/hwmon/hwmon0/name": "nvme",
                "sys/class/hwmon/hwmon0/temp1_input": "30000",
                "sys/class/hwmon/hwmon3/name": "k10temp",
                "sys/class/hwmon/hwmon3/temp1_input": "48250",
            },
            48.25,
            id="hwmon of the cpu, not of the disk",
        ),
        pytest.param(
            {
                "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
                "sys/class/thermal/thermal_zone0/temp": "51540",
            },
            51.54,
            id="thermal zone",
        ),
        pytest.param({"sys/class/hwmon/hwmon0/name": "coretemp"}, None, id="unreadable"),
        pytest.param({"sys/x": ""}, None, id="no sensor"),
    ],
)
def test_temperature(
    write_tree: Callable[[Tree], Path], files: Tree, expected: float | None
) -> None:
    assert read_celsius(find_sensors(write_tree(files))) == expected


def _rapl(zone: str, name: str, energy: int) -> dict[str, str]:
    base = f"sys/class/powercap/intel-rapl:{zone}"
    return {
        f"{base}/name": name,
        f"{base}/energy_uj": str(energy),
        f"{base}/max_energy_range_uj": "1000000000",
    }


def test_power_comes_from_energy_between_two_readings(
    write_tree: Callable[[Tree], Path],
) -> None:
    root = write_tree(
        _rapl("0", "package-0", 999_000_000)
        | _rapl("0:0", "core", 5)
        | _rapl("1", "package-1", 5_000_000)
    )
    meter = PowerMeter(find_sensors(root))
    assert meter.read(100.0) is None
    zones = root / "sys/class/powercap"
    # Package 0 wrapped around: 1 J to the end and 19 J after it.
    (zones / "intel-rapl:0/energy_uj").write_text("19000000")
    (zones / "intel-rapl:1/energy_uj").write_text("15000000")
    assert meter.read(102.0) == pytest.approx((20 + 10) / 2)
    assert meter.read(102.01) == pytest.approx(15.0)


def test_counter_of_the_platform_is_preferred(write_tree: Callable[[Tree], Path]) -> None:
    root = write_tree(_rapl("0", "package-0", 0) | _rapl("1", "psys", 0))
    meter = PowerMeter(find_sensors(root))
    meter.read(0.0)
    (root / "sys/class/powercap/intel-rapl:1/energy_uj").write_text("7000000")
    assert meter.read(1.0) == pytest.approx(7.0)


def test_power_meter_is_read_directly(write_tree: Callable[[Tree], Path]) -> None:
    root = write_tree(
        {
            "sys/class/hwmon/hwmon1/name": "power_meter",
            "sys/class/hwmon/hwmon1/power1_average": "183000000",
        }
    )
    assert PowerMeter(find_sensors(root)).read(0.0) == 183.0


def test_power_is_null_when_a_counter_cannot_be_read(write_tree: Callable[[Tree], Path]) -> None:
    root = write_tree(_rapl("0", "package-0", 5))
    files = find_sensors(root)
    (root / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    meter = PowerMeter(files)
    assert meter.read(0.0) is None
    assert meter.read(1.0) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /sys")
def test_real_sensors_are_plausible() -> None:
    celsius = read_celsius(find_sensors())
    assert celsius is None or -30 < celsius < 150
