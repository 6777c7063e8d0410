"""Bytes, durations and times as people read and type them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_STEPS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SIZES = {"": 1, "B": 1} | {
    unit: 1024**power
    for power, letter in enumerate("KMGTP", start=1)
    for unit in (letter, f"{letter}I", f"{letter}IB")
}
_SIZES |= {f"{letter}B": 1000**power for power, letter in enumerate("KMGTP", start=1)}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

GIB = 1024**3


def size_text(size_bytes: int, gap: str = " ") -> str:
    """`58.9 GiB`; give `gap=""` inside tables, so that a cell stays one word."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes}{gap}B"
    value, power = size_bytes / 1024, 1
    while abs(value) >= 1023.95 and power < len(_STEPS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.1f}{gap}{_STEPS[power]}"


def parse_size(text: str) -> int:
    """Bytes of `10GiB`, `10G` (both 1024-based), `10GB` (1000-based) or `1048576`.

    Raises ValueError with a sentence for the user.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in _SIZES:
        raise ValueError(f"{text!r} is not a size; write for example 10GiB or 500MiB")
    return int(float(match[1]) * _SIZES[match[2].upper()])


def age_text(seconds: float) -> str:
    """`0.4s`, `41s`, `9m2s`, `2h5m`, `3d4h`; the two largest units only."""
    if seconds < 0:
        return f"-{age_text(-seconds)}"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    parts = [(days, "d"), (hour, "h"), (minute, "m"), (second, "s")]
    first = next(index for index, (count, _) in enumerate(parts) if count)
    return "".join(f"{count}{unit}" for count, unit in parts[first : first + 2] if count)


def parse_duration(text: str) -> float:
    """Seconds of `300ms`, `15s`, `5m`, `1h30m` or a bare number of seconds.

    Raises ValueError with a sentence for the user.
    """
    cleaned = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", cleaned):
        seconds = float(cleaned)
    elif re.fullmatch(r"(\d+(\.\d+)?(ms|[smhd]))+", cleaned):
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhd])", cleaned)
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    else:
        raise ValueError(f"{text!r} is not a duration; write for example 15s, 300ms or 5m")
    if seconds <= 0:
        raise ValueError(f"{text!r} must be greater than zero; write for example 15s")
    return seconds


def parse_time(text: str) -> datetime | None:
    """A time as the API writes it (`…Z` or `…+00:00`), or None when it is not one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def time_text(moment: datetime) -> str:
    """ISO-8601 in UTC with `Z`, the one form in our JSON."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
