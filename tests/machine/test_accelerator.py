"""Accelerators of AMD and Apple: recorded texts and pretended sysfs trees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skulkd.machine.accelerator import choose
from skulkd.machine.accelerator_amd import parse_active_clock, read_amd
from skulkd.machine.accelerator_apple import parse_ioreg
from skulkd.wire.machine import AcceleratorMetrics

from .conftest import Tree

MIB = 1024**2

SCLK = "0: 500Mhz\n1: 1900Mhz *\n2: 2482Mhz\n"


def _card(number: int, **more: str) -> dict[str, str]:
    device = f"sys/class/drm/card{number}/device"
    files = {
        "vendor": "0x1002",
        "device": "0x744c",
        "mem_info_vram_total": str(24 * 1024 * MIB),
        "mem_info_vram_used": str(300 * MIB),
        "mem_info_gtt_total": str(31 * 1024 * MIB),
        "gpu_busy_percent": "12",
        "pp_dpm_sclk": SCLK,
        "hwmon/hwmon4/power1_average": "26000000",
        "hwmon/hwmon4/temp1_input": "41000",
    }
    merged = files | {name.replace("__", "/hwmon4/"): text for name, text in more.items()}
    return {f"{device}/{name}": text + "\n" for name, text in merged.items()}


def test_discrete_amd_card_has_no_gtt(write_tree: Callable[[Tree], Path]) -> None:
    root = write_tree(_card(1) | {"sys/class/drm/card1-DP-1/status": "connected"})
    assert read_amd(root) == [
        AcceleratorMetrics(
            vendor="amd",
            name="AMD GPU 0x744c",
            utilization_ratio=0.12,
            vram_total_bytes=24 * 1024 * MIB,
            vram_used_bytes=300 * MIB,
            power_watts=26.0,
            temperature_celsius=41.0,
            clock_mhz=1900,
        )
    ]


def test_amd_chip_with_unified_memory_reports_gtt(write_tree: Callable[[Tree], Path]) -> None:
    root = write_tree(_card(0, hwmon__in1_label="vddnb", product_name="Radeon 8060S"))
    [found] = read_amd(root)
    assert (found.name, found.gtt_total_bytes) == ("Radeon 8060S", 31 * 1024 * MIB)


def test_amd_files_that_cannot_be_read_leave_nulls(write_tree: Callable[[Tree], Path]) -> None:
    device = "sys/class/drm/card0/device"
    root = write_tree({f"{device}/vendor": "0x1002", f"{device}/mem_info_vram_total": "1024"})
    assert read_amd(root) == [
        AcceleratorMetrics(vendor="amd", name="AMD GPU", vram_total_bytes=1024)
    ]


@pytest.mark.parametrize("vendor", ["0x8086", "0x10de"])
def test_cards_of_other_vendors_are_not_amd(
    write_tree: Callable[[Tree], Path], vendor: str
) -> None:
    assert read_amd(write_tree(_card(0, vendor=vendor))) == []


@pytest.mark.parametrize(
    ("text", "expected"), [(SCLK, 1900), ("S: 19Mhz *\n0: 500Mhz\n", 19), ("0: 500Mhz\n", None)]
)
def test_clock_is_the_starred_line(text: str, expected: int | None) -> None:
    assert parse_active_clock(text) == expected


IOREG = """\
+-o AGXAcceleratorG16G  <class AGXAcceleratorG16G, id 0x1000005d5, registered, matched, active, busy 0 (43 ms), retain 88>
    {
      "IOClass" = "AGXAcceleratorG16G"
      "IOReportLegend" = ({"IOReportChannels"=((1,2,"In use system memory"))})
      "PerformanceStatistics" = {"In use system memory (driver)"=0,"Alloc system memory"=5296744038,"Tiler Utilization %"=10,"recoveryCount"=0,"Renderer Utilization %"=14,"Device Utilization %"=16,"In use system memory"=2363801600}
      "model" = "Apple M4"
      "gpu-core-count" = 10
    }

"""  # noqa: E501 - the tool prints long lines


def test_apple_gpu_is_read_from_ioreg() -> None:
    assert parse_ioreg(IOREG) == [
        AcceleratorMetrics(
            vendor="apple",
            name="Apple M4",
            utilization_ratio=0.16,
            vram_used_bytes=2363801600,
        )
    ]


def test_apple_entry_without_statistics_measures_nothing() -> None:
    text = '+-o AMDRadeon  <class AMD>\n    {\n      "model" = <"AMD Radeon Pro 5500M">\n    }\n'
    assert parse_ioreg(text) == [AcceleratorMetrics(vendor="unknown", name="AMD Radeon Pro 5500M")]


def test_of_several_the_one_with_most_memory_is_named_with_the_count() -> None:
    small = AcceleratorMetrics(vendor="nvidia", name="T4", vram_total_bytes=16)
    large = AcceleratorMetrics(vendor="nvidia", name="A100", vram_total_bytes=80)
    chosen = choose([small, large, small])
    assert chosen is not None
    assert (chosen.name, chosen.vram_total_bytes) == ("A100 (1 of 3)", 80)
    assert choose([small]) == small
    assert choose([]) is None
