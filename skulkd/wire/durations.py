"""How long a model stays loaded, as clients and `skulk.yaml` write it."""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"-?(?:\d+(?:\.\d*)?(?:ns|us|µs|ms|s|m|h))+")
_PART = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)")
_PLAIN = re.compile(r"-?\d+(?:\.\d*)?")
MOST_S = 10 * 365 * 86_400.0
"""Longer means forever; no clock has to count so far."""


def keep_alive_s(value: str | float) -> float:
    """Seconds of a number or of a text such as `5m`, `1h30m`, `90s`, `0`; below 0: infinite.

    Raises ValueError.
    """
    seconds = float(value) if isinstance(value, int | float) else _parsed(value.strip())
    if math.isnan(seconds):
        raise ValueError("must be a number of seconds or a duration such as 5m")
    return math.inf if seconds < 0 or seconds > MOST_S else seconds


def _parsed(text: str) -> float:
    if _PLAIN.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        raise ValueError("must be a duration such as 5m, 1h30m or 90s; 0 at once, -1 never")
    total = sum(float(amount) * _UNIT_S[unit] for amount, unit in _PART.findall(text))
    return -total if text.startswith("-") else total


def _number_is_text(value: Any) -> Any:
    # YAML reads bare seconds as a number.
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _checked(value: str) -> str:
    keep_alive_s(value)
    return value


KeepAlive = Annotated[str, BeforeValidator(_number_is_text), AfterValidator(_checked)]
"""A setting: checked, and kept as it was written."""
