"""What a model does under load: samples of requests become one step for each number of clients,
and steps become a table, a chart and the knee of the curve. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, TypedDict

from skulkctl.chat.reply import seconds_text
from skulkctl.output.tables import EMPTY, Column, Resource

GAIN = 1.1
"""More clients are worth it while they bring at least so many times the tokens per second."""
_CHART_ROWS = 6
_COLUMN = 9
_MARGIN = 9
_AXIS = " clients"
_LEVELS = " ▁▂▃▄▅▆▇█"


class Sample(NamedTuple):
    """One request that was answered."""

    first_token_s: float
    seconds: float
    tokens: int

    @property
    def tokens_per_second(self) -> float | None:
        """While it was generated; the first token came with the prompt's time."""
        took_s = self.seconds - self.first_token_s
        return (self.tokens - 1) / took_s if self.tokens > 1 and took_s > 0 else None


class StepItem(TypedDict):
    """One number of clients as `skulkctl bench -o json` prints it."""

    concurrency: int
    requests: int
    failed: int
    seconds: float
    tokens: int
    firstTokenSecondsP50: float | None
    firstTokenSecondsP90: float | None
    tokensPerSecondPerClient: float | None
    tokensPerSecond: float
    knee: bool


def summarise(concurrency: int, samples: Sequence[Sample], failed: int, took_s: float) -> StepItem:
    first = sorted(sample.first_token_s for sample in samples)
    speeds = [speed for sample in samples if (speed := sample.tokens_per_second) is not None]
    tokens = sum(sample.tokens for sample in samples)
    return {
        "concurrency": concurrency,
        "requests": len(samples),
        "failed": failed,
        "seconds": round(took_s, 3),
        "tokens": tokens,
        "firstTokenSecondsP50": percentile(first, 50),
        "firstTokenSecondsP90": percentile(first, 90),
        "tokensPerSecondPerClient": round(median(speeds), 2) if speeds else None,
        "tokensPerSecond": round(tokens / took_s, 2) if took_s > 0 else 0.0,
        "knee": False,
    }


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The nearest rank; None of nothing."""
    if not ordered:
        return None
    return round(ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)], 4)


def with_knee(steps: Sequence[StepItem]) -> list[StepItem]:
    """The steps, with a mark at the last one that was worth its clients."""
    knee = 0
    while (
        knee + 1 < len(steps)
        and steps[knee + 1]["tokensPerSecond"] >= GAIN * steps[knee]["tokensPerSecond"]
    ):
        knee += 1
    return [{**step, "knee": index == knee} for index, step in enumerate(steps)]


def _seconds(value: object) -> str:
    return seconds_text(value) if isinstance(value, int | float) else EMPTY


def _rate(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else EMPTY


def _knee(value: object) -> str:
    return "◀ knee" if value else EMPTY


CURVE = Resource(
    kind="LoadCurve",
    name_path="concurrency",
    columns=(
        Column("clients", "concurrency", "Requests at the same time.", right=True),
        Column("requests", "requests", "Requests that were answered.", right=True, spare=2),
        Column("failed", "failed", "Requests that failed.", right=True, spare=1),
        Column(
            "ttft-p50",
            "firstTokenSecondsP50",
            "Time to first token, median.",
            _seconds,
            right=True,
        ),
        Column(
            "ttft-p90",
            "firstTokenSecondsP90",
            "Time to first token, 90th percentile.",
            _seconds,
            right=True,
        ),
        Column(
            "tok/s-client",
            "tokensPerSecondPerClient",
            "Tokens per second of one client, median.",
            _rate,
            right=True,
        ),
        Column(
            "tok/s-total",
            "tokensPerSecond",
            "Tokens per second of all clients together.",
            _rate,
            right=True,
        ),
        Column("knee", "knee", "Where more clients stop being worth it.", _knee),
    ),
)


def chart(steps: Sequence[StepItem], room: int) -> str:
    """Tokens per second of all clients, a column for each step, the knee marked below it.

    Nothing where it does not fit.
    """
    most = max((step["tokensPerSecond"] for step in steps), default=0.0)
    if most <= 0 or _MARGIN + _COLUMN * len(steps) + len(_AXIS) > room:
        return ""
    lines = [f"{most:>8.1f} tokens/s"]
    for row in range(_CHART_ROWS, 0, -1):
        cells = [_cell(step["tokensPerSecond"] / most * _CHART_ROWS - (row - 1)) for step in steps]
        lines.append(" " * 8 + "│" + "".join(f"  {cell * (_COLUMN - 2)}" for cell in cells))
    lines.append(f"{'0':>8}└" + "─" * (_COLUMN * len(steps) + 1))
    names = [f"{step['concurrency']}{' ◀ knee' if step['knee'] else ''}" for step in steps]
    lines.append(" " * _MARGIN + "".join(f"  {name:<{_COLUMN - 2}}" for name in names) + _AXIS)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _cell(level: float) -> str:
    return _LEVELS[round(min(max(level, 0.0), 1.0) * (len(_LEVELS) - 1))]
