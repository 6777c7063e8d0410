"""How fast a transfer moves now, and how long the rest takes at that rate. Pure; time is given.

The average since the beginning is useless for that: it counts the time before the first byte.
"""

from collections import deque
from collections.abc import Sequence

WINDOW_S = 10.0
MIN_SPAN_S = 1.0

Sample = tuple[float, int]
"""A moment, and the bytes that were done then."""


def moving_rate(samples: Sequence[Sample], now: float, window_s: float = WINDOW_S) -> float | None:
    """Bytes per second over the last `window_s`; None before there is enough to tell."""
    if not samples:
        return None
    start = now - window_s
    before = [sample for sample in samples if sample[0] <= start]
    first_at, first_bytes = before[-1] if before else samples[0]
    # A sample from before the window stands for its beginning: nothing was seen between the two.
    span_s = now - max(first_at, start)
    if span_s < MIN_SPAN_S:
        return None
    return max(0, samples[-1][1] - first_bytes) / span_s


def seconds_left(done_bytes: int, total_bytes: int, rate: float | None) -> float | None:
    """None when it is not known: no rate, no total, or nothing moves."""
    if not rate or total_bytes <= 0:
        return None
    return max(0, total_bytes - done_bytes) / rate


class TransferMeter:
    """Samples of one transfer; keeps no more than the window needs."""

    def __init__(self, now: float, done_bytes: int = 0) -> None:
        self._samples: deque[Sample] = deque([(now, done_bytes)])
        self._moved_at = now

    def add(self, now: float, done_bytes: int) -> None:
        last = self._samples[-1]
        if done_bytes != last[1]:
            self._moved_at = now
        if done_bytes < last[1]:
            self._samples.clear()  # bytes were thrown away: they come again
        elif done_bytes > last[1] == self._samples[0][1]:
            # The first bytes after a pause: the pause says nothing about how fast they come.
            self._samples.clear()
            self._samples.append(last)
        self._samples.append((now, done_bytes))
        while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()

    def rate(self, now: float) -> float | None:
        return moving_rate(self._samples, now)

    def still_s(self, now: float) -> float:
        """Seconds since the last byte."""
        return now - self._moved_at
