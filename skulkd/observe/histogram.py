"""A histogram that is cheap to add to; Prometheus' own objects are made when it is scraped."""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """Counts of values up to each bound, and above the last one."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        return sum(self._counts)

    def add(self, value: float, times: int = 1) -> None:
        """Note a value, or the same value several times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Bounds as text with the number of values up to each."""
        rows: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows
