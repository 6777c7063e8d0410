"""AMD GPUs through the amdgpu files in /sys/class/drm. Knows nothing of other vendors."""

import re
from pathlib import Path

from skulkd.machine.sysfs import read_int, read_text
from skulkd.wire.machine import AcceleratorMetrics

AMD_VENDOR_ID = "0x1002"


def read_amd(root: Path = Path("/")) -> list[AcceleratorMetrics]:
    """Every AMD GPU with its amdgpu driver loaded, by card number."""
    cards = [
        path
        for path in (root / "sys/class/drm").glob("card*")
        if re.fullmatch(r"card\d+", path.name)
    ]
    return [
        _read_card(card / "device")
        for card in sorted(cards, key=lambda path: int(path.name.removeprefix("card")))
        if read_text(card / "device/vendor") == AMD_VENDOR_ID
        and read_int(card / "device/mem_info_vram_total") is not None
    ]


def parse_active_clock(text: str) -> int | None:
    """MHz of the starred line of pp_dpm_sclk, such as `1: 800Mhz *`."""
    found = re.search(r"^\S+:\s*(\d+)\s*Mhz\s*\*", text, re.MULTILINE | re.IGNORECASE)
    return int(found[1]) if found else None


def _read_card(device: Path) -> AcceleratorMetrics:
    busy = read_int(device / "gpu_busy_percent")
    sensors = next(iter(sorted((device / "hwmon").glob("hwmon*"))), device / "hwmon")
    power = read_int(sensors / "power1_average")
    if power is None:
        power = read_int(sensors / "power1_input")
    temperature = read_int(sensors / "temp1_input")
    return AcceleratorMetrics(
        vendor="amd",
        name=_name(device),
        utilization_ratio=None if busy is None else min(busy / 100, 1.0),
        vram_total_bytes=read_int(device / "mem_info_vram_total"),
        vram_used_bytes=read_int(device / "mem_info_vram_used"),
        gtt_total_bytes=read_int(device / "mem_info_gtt_total") if _unified(sensors) else None,
        power_watts=None if power is None else power / 1_000_000,
        temperature_celsius=None if temperature is None else temperature / 1000,
        clock_mhz=parse_active_clock(read_text(device / "pp_dpm_sclk") or ""),
    )


def _unified(sensors: Path) -> bool:
    """Discrete cards report GTT as well; only chips with a built-in GPU have this voltage."""
    return read_text(sensors / "in1_label") == "vddnb"


def _name(device: Path) -> str:
    product = read_text(device / "product_name")
    return product or f"AMD GPU {read_text(device / 'device') or ''}".strip()
