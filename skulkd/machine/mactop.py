"""Power, temperature and both kinds of cores of a Mac, where the program `mactop` is installed.

macOS itself tells these to root only. Without `mactop` they stay unmeasured.
"""

import json
from dataclasses import dataclass
from typing import Any

from skulkd.machine.tools import ToolError, ToolMissing, run_tool
from skulkd.wire.machine import SystemPerformanceProfile

TIMEOUT_S = 4.0
COMMAND = ("mactop", "--headless", "--format", "json", "--interval", "1000", "--count", "1")


@dataclass(frozen=True, slots=True)
class MactopSample:
    """One second of a Mac: watts, degrees Celsius, percent. None is "not told"."""

    system_watts: float | None = None
    gpu_watts: float | None = None
    gpu_celsius: float | None = None
    pcpu_percent: float | None = None
    ecpu_percent: float | None = None


def read_mactop() -> MactopSample | None:
    """One sample; None where the program is not installed. Raises ToolError."""
    try:
        return parse_mactop(run_tool(COMMAND, TIMEOUT_S))
    except ToolMissing:
        return None


def parse_mactop(text: str) -> MactopSample:
    """The last whole sample: one JSON object per line, or a list of them."""
    samples = [one for line in text.splitlines() if (one := _object(line)) is not None]
    if not samples:
        raise ToolError("mactop: its answer is not the expected JSON")
    last = samples[-1]
    chip = last.get("soc_metrics")
    power = chip if isinstance(chip, dict) else {}
    return MactopSample(
        system_watts=_positive(power.get("system_power")),
        gpu_watts=_number(power.get("gpu_power")),
        gpu_celsius=_positive(power.get("gpu_temp")),
        pcpu_percent=_percent(last.get("pcpu_usage")),
        ecpu_percent=_percent(last.get("ecpu_usage")),
    )


def with_sample(
    profile: SystemPerformanceProfile, sample: MactopSample | None
) -> SystemPerformanceProfile:
    """The profile with what the sample measured; the rest stays as it was."""
    if sample is None:
        return profile
    measured = {
        "temp": sample.gpu_celsius,
        "sys_power": sample.system_watts,
        "pcpu_usage": sample.pcpu_percent,
        "ecpu_usage": sample.ecpu_percent,
    }
    update: dict[str, Any] = {key: value for key, value in measured.items() if value is not None}
    if profile.accelerator is not None:
        update["accelerator"] = profile.accelerator.model_copy(
            update={"power_watts": sample.gpu_watts, "temperature_celsius": sample.gpu_celsius}
        )
    return profile.model_copy(update=update)


def _object(line: str) -> dict[str, Any] | None:
    """A line that is cut off or is not a sample is skipped."""
    try:
        value = json.loads(line.strip().strip("[],"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _positive(value: Any) -> float | None:
    """A machine draws power and is not frozen: 0 is a sensor that is not there."""
    found = _number(value)
    return found if found is not None and found > 0 else None


def _percent(value: Any) -> float | None:
    """Of `[MHz, percent]`."""
    return _number(value[1]) if isinstance(value, list) and len(value) > 1 else None
