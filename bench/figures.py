"""What a measurement is, and how a table of them is printed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number beside the bound that an issue sets for it."""

    name: str
    value: float
    bound: float
    better: Literal["less", "more"]
    unit: str = "×"
    detail: str = ""

    @property
    def holds(self) -> bool:
        return self.value <= self.bound if self.better == "less" else self.value >= self.bound

    def row(self) -> str:
        sign = "≤" if self.better == "less" else "≥"
        mark = "yes" if self.holds else "**no**"
        return (
            f"| {self.name} | {self.value:.2f} {self.unit} | {sign} {self.bound:g} {self.unit} "
            f"| {mark} | {self.detail} |"
        )


HEADER = "| figure | measured | bound | holds | detail |\n|---|---|---|---|---|"


def table(figures: Sequence[Figure]) -> str:
    return "\n".join([HEADER, *(figure.row() for figure in figures)])


def alternate(rounds: int, measurements: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Medians of measurements taken in turns, so that a noisy minute hits all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure in measurements.items():
            taken[name].append(measure())
    return {name: statistics.median(values) for name, values in taken.items()}


def likely_medians(values: Sequence[float]) -> tuple[float, float]:
    """Between which of these values the median of endless many lies, in 19 of 20 cases."""
    ordered = sorted(values)
    middle, width = len(ordered) / 2, 0.98 * math.sqrt(len(ordered))
    low = max(0, math.floor(middle - width))
    high = min(len(ordered) - 1, math.ceil(middle + width) - 1)
    return ordered[low], ordered[high]
