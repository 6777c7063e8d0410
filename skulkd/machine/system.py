"""CPU use, temperature and power of this machine as one SystemPerformanceProfile.

A number nobody measured is None, never zero. Knows nothing of how accelerators are read.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from skulkd.machine.sensors import (
    SHORTEST_INTERVAL_S,
    PowerMeter,
    SensorFiles,
    find_sensors,
    read_celsius,
)
from skulkd.wire.machine import AcceleratorMetrics, SystemPerformanceProfile

IDLE_FIELDS = {"idle", "iowait"}
# Linux counts guest time inside user time as well.
COUNTED_TWICE_FIELDS = {"guest", "guest_nice"}


def busy_percent(before: dict[str, float], after: dict[str, float]) -> float | None:
    """CPU percent (0 to 100, all cores together) between two readings of the CPU clocks."""
    spent = {key: max(0.0, after[key] - before[key]) for key in before.keys() & after.keys()}
    total = sum(value for key, value in spent.items() if key not in COUNTED_TWICE_FIELDS)
    idle = sum(value for key, value in spent.items() if key in IDLE_FIELDS)
    return None if total <= 0 else round(100 * (total - idle) / total, 1)


def with_accelerator(
    profile: SystemPerformanceProfile, accelerator: AcceleratorMetrics | None
) -> SystemPerformanceProfile:
    """Add the accelerator and its use in percent."""
    ratio = accelerator.utilization_ratio if accelerator else None
    usage = None if ratio is None else round(ratio * 100, 1)
    return profile.model_copy(update={"accelerator": accelerator, "gpu_usage": usage})


class SystemReader:
    """Reads again and again; keeps the last counters, because use is a difference."""

    def __init__(
        self,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
        platform: str = sys.platform,
    ) -> None:
        self._clock = clock
        self._files = find_sensors(root) if platform == "linux" else SensorFiles(None, None, ())
        self._power = PowerMeter(self._files)
        self._last: tuple[float, dict[str, float]] | None = None
        self._percent: float | None = None

    def __call__(self) -> SystemPerformanceProfile:
        """The machine's profile; CPU percent is None on the first reading."""
        now = self._clock()
        return SystemPerformanceProfile(
            gpu_usage=None,
            temp=read_celsius(self._files),
            sys_power=self._power.read(now),
            pcpu_usage=self._read_percent(now),
            # Only Apple's powermetrics (root) tells the two kinds of cores apart.
            ecpu_usage=None,
            accelerator=None,
        )

    def _read_percent(self, now: float) -> float | None:
        times = psutil.cpu_times()._asdict()
        if self._last is None:
            self._last = (now, times)
        elif now - self._last[0] >= SHORTEST_INTERVAL_S:
            self._percent = busy_percent(self._last[1], times)
            self._last = (now, times)
        return self._percent
