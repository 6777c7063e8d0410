"""The window that decides when restarting stops, with a clock of our own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.worker.endings import CrashWindow
from skulkd.worker.options import CrashPolicy


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def crash_at(*moments: float) -> tuple[CrashWindow, Clock]:
    clock = Clock()
    window = CrashWindow(CrashPolicy(), clock)
    for moment in moments:
        clock.now = moment
        window.record()
    return window, clock


@pytest.mark.parametrize(
    ("moments", "is_open"),
    [
        ((0,), False),
        ((0, 1), False),
        ((0, 1, 2), True),
        ((0, 30, 59.9), True),
        ((0, 30, 60), False),
        ((0, 50, 100, 150), False),
        ((0, 50, 100, 101), True),
    ],
)
def test_three_crashes_within_a_minute_open_the_circuit(
    moments: tuple[float, ...], is_open: bool
) -> None:
    assert crash_at(*moments)[0].open is is_open


def test_an_open_circuit_stays_open_until_it_is_closed() -> None:
    window, clock = crash_at(0, 1, 2)
    clock.now = 10_000
    assert (window.count, window.open) == (0, True)
    window.close()
    assert (window.count, window.open) == (0, False)
    window.record()
    assert (window.count, window.open) == (1, False)


@pytest.mark.parametrize(("moments", "delay"), [((), 0.5), ((0,), 0.5), ((0, 1), 1.0)])
def test_the_wait_doubles_with_every_crash_that_counts(
    moments: tuple[float, ...], delay: float
) -> None:
    assert crash_at(*moments)[0].delay_s == delay


def test_old_crashes_do_not_lengthen_the_wait() -> None:
    window, clock = crash_at(0, 1)
    clock.now = 200
    window.record()
    assert window.delay_s == 0.5


@given(st.lists(st.integers(min_value=0, max_value=300), max_size=12))
def test_the_circuit_is_open_exactly_when_three_crashes_were_ever_close(
    moments: list[int],
) -> None:
    moments.sort()
    window, _ = crash_at(*moments)
    close = any(third - first < 60 for first, third in zip(moments, moments[2:], strict=False))
    assert window.open is close
