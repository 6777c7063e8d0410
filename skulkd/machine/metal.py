"""How much memory macOS lets the GPU wire, and how short the system is of memory. No root needed.

What the operator set is exact. The default is an estimate: Metal alone knows it, and it is not
asked here.
"""

from collections.abc import Mapping
from fractions import Fraction

from skulkd.machine.tools import ToolError, ToolMissing, run_tool
from skulkd.wire.base import Memory
from skulkd.wire.machine import MemoryPressure, MetalLimits

TIMEOUT_S = 1.0
PRESSURES: Mapping[str, MemoryPressure] = {"1": "normal", "2": "warning", "4": "critical"}

_MIB = 1024**2
_SMALL_BYTES = 36 * 1024**3


def read_metal_limits() -> MetalLimits:
    """The limits of this Mac; without a wired limit where there is no such key, as on Intel.

    Raises ToolError when sysctl cannot be asked at all.
    """
    told = _sysctl("iogpu.wired_limit_mb")
    installed = _sysctl("hw.memsize")
    pressure = PRESSURES.get(_sysctl("kern.memorystatus_vm_pressure_level") or "")
    if told is None or not told.isdecimal() or installed is None or not installed.isdecimal():
        return MetalLimits(pressure=pressure)
    if int(told) > 0:
        limit = Memory.of(int(told) * _MIB)
        return MetalLimits(wired_limit=limit, is_default=False, pressure=pressure)
    limit = Memory.of(default_limit_bytes(int(installed)))
    return MetalLimits(wired_limit=limit, pressure=pressure)


def default_limit_bytes(installed: int) -> int:
    """What macOS allows unless told otherwise: two thirds of little memory, else three quarters."""
    part = Fraction(2, 3) if installed < _SMALL_BYTES else Fraction(3, 4)
    return int(installed * part)


def _sysctl(key: str) -> str | None:
    """None for a key that this Mac does not have."""
    try:
        return run_tool(["sysctl", "-n", key], TIMEOUT_S).strip()
    except ToolMissing:
        raise
    except ToolError:
        return None
