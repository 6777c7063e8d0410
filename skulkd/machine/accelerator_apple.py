"""The GPU of a Mac through `ioreg`, which needs no root. Knows nothing of other vendors."""

import re

from skulkd.machine.tools import run_tool
from skulkd.wire.machine import AcceleratorMetrics

TIMEOUT_S = 2.0
COMMAND = ("ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")


def read_apple() -> list[AcceleratorMetrics]:
    """Every GPU that the registry of a Mac lists."""
    return parse_ioreg(run_tool(COMMAND, TIMEOUT_S))


def parse_ioreg(text: str) -> list[AcceleratorMetrics]:
    """One GPU per registry entry (`+-o …`).

    Memory is shared with the CPU, so there is no total of its own; power, temperature and
    clock need root and stay unmeasured.
    """
    entries = re.split(r"^\+-o ", text, flags=re.MULTILINE)[1:]
    return [_parse_entry(entry) for entry in entries]


def _parse_entry(entry: str) -> AcceleratorMetrics:
    # Both `"model" = "Apple M4"` and the older `"model" = <"AMD Radeon Pro 5500M">` occur.
    model = re.search(r'^[\s|]*"model" = <?"([^"]+)">?', entry, re.MULTILINE)
    name = model[1].strip("\0 ") if model else "Unknown"
    busy = _statistic(entry, "Device Utilization %")
    return AcceleratorMetrics(
        vendor="apple" if name.startswith("Apple") else "unknown",
        name=name,
        utilization_ratio=None if busy is None else min(busy / 100, 1.0),
        vram_used_bytes=_statistic(entry, "In use system memory"),
    )


def _statistic(entry: str, key: str) -> int | None:
    """A value of the PerformanceStatistics dictionary; the quotes keep longer keys out."""
    statistics = re.search(r'"PerformanceStatistics" = \{([^}]*)\}', entry)
    found = re.search(rf'"{re.escape(key)}"=(\d+)', statistics[1]) if statistics else None
    return int(found[1]) if found else None
