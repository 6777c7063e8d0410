"""How long a model stays loaded, in all spellings of clients and settings."""

from __future__ import annotations

import math

import pytest

from skulkd.wire.config import ModelsSection
from skulkd.wire.durations import keep_alive_s


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0.0), ("0", 0.0), ("0s", 0.0), (300, 300.0), (1.5, 1.5), ("300", 300.0),
        ("5m", 300.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("250ms", 0.25), (" 10s ", 10.0),
        (-1, math.inf), ("-1", math.inf), ("-1m", math.inf), (1e300, math.inf),
    ],
)  # fmt: skip
def test_a_keep_alive_is_understood(written: str | float, seconds: float) -> None:
    assert keep_alive_s(written) == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["", "soon", "5 m", "m5", "5mm", "1h-30m", "5d", math.nan])
def test_anything_else_is_refused(written: str | float) -> None:
    with pytest.raises(ValueError, match="must be"):
        keep_alive_s(written)


def test_the_setting_takes_numbers_and_durations() -> None:
    assert ModelsSection().model_dump() == {"on_demand": False, "idle_ttl": "5m"}
    assert ModelsSection(idle_ttl=300).idle_ttl == "300"  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a duration"):
        ModelsSection(idle_ttl="soon")
