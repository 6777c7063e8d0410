"""Temperature of the CPU and power drawn, from Linux hwmon, thermal zones and RAPL.

Finds its files once, then reads only those: walking every sensor on each reading is slow.
"""

from dataclasses import dataclass
from pathlib import Path

from skulkd.machine.sysfs import read_int, read_text

# Drivers that measure the CPU, best first; temp1 is the package of each of them.
CPU_TEMPERATURE_DRIVERS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal")
CPU_THERMAL_ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc-thermal")
SHORTEST_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class EnergyCounter:
    """One RAPL counter in microjoules and the value it wraps around at."""

    path: Path
    wraps_at: int


@dataclass(frozen=True, slots=True)
class SensorFiles:
    """Which files to read; None or empty where this machine has no such sensor."""

    temperature: Path | None
    power: Path | None
    energy: tuple[EnergyCounter, ...]


def find_sensors(root: Path = Path("/")) -> SensorFiles:
    """Look once through hwmon, thermal zones and powercap."""
    drivers = {read_text(path / "name"): path for path in _sorted(root, "hwmon", "hwmon*")}
    zones = {read_text(path / "type"): path for path in _sorted(root, "thermal", "thermal_zone*")}
    by_driver = [drivers[name] for name in CPU_TEMPERATURE_DRIVERS if name in drivers]
    by_zone = [zones[name] for name in CPU_THERMAL_ZONES if name in zones]
    temperature = [path / "temp1_input" for path in by_driver] + [path / "temp" for path in by_zone]
    meter = drivers.get("power_meter")
    return SensorFiles(
        temperature=next(iter(temperature), None),
        power=meter / "power1_average" if meter else None,
        energy=_find_energy(root),
    )


def read_celsius(files: SensorFiles) -> float | None:
    """Degrees Celsius of the CPU."""
    millidegrees = read_int(files.temperature) if files.temperature else None
    return None if millidegrees is None else millidegrees / 1000


class PowerMeter:
    """Watts: straight from a power meter, else from energy counters between two readings."""

    def __init__(self, files: SensorFiles) -> None:
        self._files = files
        self._last: tuple[float, tuple[int, ...]] | None = None
        self._watts: float | None = None

    def read(self, now: float) -> float | None:
        """Watts now; None on the first reading of counters and where nothing is readable."""
        if self._files.power is not None:
            microwatts = read_int(self._files.power)
            if microwatts is not None:
                return microwatts / 1_000_000
        counts = tuple(read_int(counter.path) for counter in self._files.energy)
        known = tuple(count for count in counts if count is not None)
        if not known or len(known) != len(counts):
            return None
        return self._from_counters(now, known)

    def _from_counters(self, now: float, counts: tuple[int, ...]) -> float | None:
        if self._last is None:
            self._last = (now, counts)
            return None
        then, before = self._last
        if now - then >= SHORTEST_INTERVAL_S:
            used = sum(
                (new - old) % counter.wraps_at
                for new, old, counter in zip(counts, before, self._files.energy, strict=True)
            )
            self._watts = used / 1_000_000 / (now - then)
            self._last = (now, counts)
        return self._watts


def _find_energy(root: Path) -> tuple[EnergyCounter, ...]:
    """The counter of the whole platform if there is one, else those of all packages."""
    # Zones with other names (core, uncore, dram) are parts of a package.
    zones = {path: read_text(path / "name") for path in _sorted(root, "powercap", "intel-rapl:*")}
    platform = [path for path, name in zones.items() if name == "psys"]
    packages = [path for path, name in zones.items() if (name or "").startswith("package")]
    found = []
    for path in platform or packages:
        wraps_at = read_int(path / "max_energy_range_uj")
        if wraps_at:
            found.append(EnergyCounter(path / "energy_uj", wraps_at))
    return tuple(found)


def _sorted(root: Path, kind: str, pattern: str) -> list[Path]:
    return sorted((root / "sys/class" / kind).glob(pattern), reverse=True)
