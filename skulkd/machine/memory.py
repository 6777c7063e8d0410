"""RAM and swap of this machine, and wired memory on macOS. Knows nothing of runners."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from skulkd.machine.cgroup import Numbers, apply_limits, find_cgroup_dirs, read_levels
from skulkd.machine.tools import ToolError, run_tool
from skulkd.wire.base import Memory
from skulkd.wire.machine import MemoryUsage

VM_STAT_TIMEOUT_S = 1.0
OVERRIDE = "OVERRIDE_MEMORY_MB"


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """One reading; `wired` is None where the system does not report it."""

    usage: MemoryUsage
    wired: Memory | None


@dataclass(frozen=True, slots=True)
class VmStat:
    """The three kinds of pages of `vm_stat` that a GPU cannot wire, in bytes."""

    wired: int
    anonymous: int
    compressor: int


def parse_vm_stat(text: str) -> VmStat:
    """Read the output of macOS `vm_stat`; raises ToolError when a needed line is missing."""
    size = re.search(r"page size of (\d+) bytes", text)
    if size is None:
        raise ToolError("vm_stat: no page size in its output")

    def pages(label: str) -> int:
        found = re.search(rf"^{re.escape(label)}:\s+(\d+)\.?\s*$", text, re.MULTILINE)
        if found is None:
            raise ToolError(f"vm_stat: no line “{label}” in its output")
        return int(found[1]) * int(size[1])

    return VmStat(
        wired=pages("Pages wired down"),
        anonymous=pages("Anonymous pages"),
        compressor=pages("Pages occupied by compressor"),
    )


def macos_available(total: int, stat: VmStat) -> int:
    """What Metal could still wire: RAM without wired, anonymous and compressor pages."""
    return max(0, total - stat.wired - stat.anonymous - stat.compressor)


class MemoryReader:
    """Reads memory again and again; remembers where its control group is."""

    def __init__(
        self,
        root: Path = Path("/"),
        environ: Mapping[str, str] = os.environ,
        platform: str = sys.platform,
    ) -> None:
        self._macos = _MacMemory() if platform == "darwin" else None
        self._cgroup = find_cgroup_dirs(root) if platform == "linux" else None
        self._available = _told_available(environ)

    def __call__(self) -> MemoryReading:
        reading = self._read_linux() if self._macos is None else self._macos.read()
        if self._available is None:
            return reading
        usage = reading.usage.model_copy(update={"ram_available": self._available})
        return replace(reading, usage=usage)

    def _read_linux(self) -> MemoryReading:
        host = _read_psutil()
        if self._cgroup is not None:
            host = apply_limits(host, read_levels(self._cgroup))
        return MemoryReading(usage=_usage(host), wired=None)


def _told_available(environ: Mapping[str, str]) -> Memory | None:
    """What the operator says models may take, as in the reference; None when nothing is said."""
    told = environ.get(OVERRIDE, "").strip()
    return Memory.of(int(told) * 1024**2) if told.isdecimal() else None


def _read_psutil() -> Numbers:
    ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    return Numbers(ram.total, ram.available, swap.total, swap.free)


class _MacMemory:
    """Memory of a Mac; what is installed is asked once."""

    def __init__(self) -> None:
        self._installed = 0

    def read(self) -> MemoryReading:
        self._installed = self._installed or _installed_bytes()
        stat = parse_vm_stat(run_tool(["vm_stat"], VM_STAT_TIMEOUT_S))
        swap, available = psutil.swap_memory(), macos_available(self._installed, stat)
        numbers = Numbers(self._installed, available, swap.total, swap.free)
        return MemoryReading(usage=_usage(numbers), wired=Memory.of(stat.wired))


def _installed_bytes() -> int:
    text = run_tool(["sysctl", "-n", "hw.memsize"], VM_STAT_TIMEOUT_S).strip()
    if not text.isdecimal():
        raise ToolError(f"sysctl: hw.memsize is not a number: {text[:40]!r}")
    return int(text)


def _usage(numbers: Numbers) -> MemoryUsage:
    return MemoryUsage(
        ram_total=Memory.of(numbers.total),
        ram_available=Memory.of(numbers.available),
        swap_total=Memory.of(numbers.swap_total),
        swap_available=Memory.of(numbers.swap_available),
    )
