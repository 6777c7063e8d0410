"""NVIDIA GPUs through `nvidia-smi`. Knows its CSV format and nothing of other vendors."""

import shutil

from skulkd.machine.tools import ToolError, ToolFailed, run_tool
from skulkd.wire.machine import AcceleratorMetrics

TIMEOUT_S = 2.0
FIELDS = (
    "name", "utilization.gpu", "memory.total", "memory.used", "power.draw", "temperature.gpu",
    "clocks.sm",
)  # fmt: skip
NO_DEVICES_EXIT_CODE = 6


def read_nvidia(timeout_s: float = TIMEOUT_S) -> list[AcceleratorMetrics]:
    """Every NVIDIA GPU; empty without the tool or without a device, ToolError if it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        return parse_nvidia_csv(run_tool(query, timeout_s))
    except ToolFailed as error:
        if error.code == NO_DEVICES_EXIT_CODE:
            return []
        raise


def parse_nvidia_csv(text: str) -> list[AcceleratorMetrics]:
    """One GPU per line, in the order of FIELDS; memory in MiB, `[N/A]` where not measured."""
    if text.strip() == "No devices were found":
        return []
    return [_parse_line(line) for line in text.splitlines() if line.strip()]


def _parse_line(line: str) -> AcceleratorMetrics:
    # Split from the right: only the name could hold a comma.
    parts = [part.strip() for part in line.rsplit(",", len(FIELDS) - 1)]
    if len(parts) != len(FIELDS):
        raise ToolError(f"nvidia-smi: {len(parts)} values where {len(FIELDS)} were asked for")
    name = parts[0]
    busy, total, used, power, temperature, clock = map(_number, parts[1:])
    return AcceleratorMetrics(
        vendor="nvidia",
        name=name,
        utilization_ratio=None if busy is None else min(busy / 100, 1.0),
        vram_total_bytes=_mib(total),
        vram_used_bytes=_mib(used),
        power_watts=power,
        temperature_celsius=temperature,
        clock_mhz=None if clock is None else int(clock),
    )


def _number(text: str) -> float | None:
    """`[N/A]`, `[Not Supported]`, `[Unknown Error]` and the like are not measured."""
    try:
        return float(text)
    except ValueError:
        return None


def _mib(value: float | None) -> int | None:
    return None if value is None else int(value) * 1024 * 1024
