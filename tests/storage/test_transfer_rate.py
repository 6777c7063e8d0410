"""How fast a transfer moves, and how long the rest takes: of the last seconds, not on average."""

from __future__ import annotations

import pytest

from skulkd.store.staging.progress import RateMeter, Sample, moving_rate, seconds_left

STEADY: list[Sample] = [(float(second), 100 * second) for second in range(60)]


@pytest.mark.parametrize(
    ("samples", "now", "rate"),
    [
        pytest.param([], 5.0, None, id="nothing-seen"),
        pytest.param([(0.0, 0)], 0.5, None, id="too-early"),
        pytest.param([(0.0, 0), (0.5, 900)], 0.5, None, id="half-a-second-says-nothing"),
        pytest.param([(0.0, 0), (2.0, 200)], 2.0, 100.0, id="since-the-beginning"),
        pytest.param(STEADY, 59.0, 100.0, id="steady"),
        pytest.param([*STEADY, (60.0, 15_900), (61.0, 25_900)], 61.0, 2080.0, id="faster-now"),
        pytest.param(STEADY, 64.0, 50.0, id="slowing-down"),
        pytest.param(STEADY, 80.0, 0.0, id="stands-still"),
        pytest.param([(0.0, 500), (5.0, 100)], 5.0, 0.0, id="thrown-away"),
    ],
)
def test_the_rate_is_that_of_the_last_seconds(
    samples: list[Sample], now: float, rate: float | None
) -> None:
    assert moving_rate(samples, now) == rate


@pytest.mark.parametrize(
    ("done", "total", "rate", "left_s"),
    [
        (0, 1000, 100.0, 10.0),
        (900, 1000, 100.0, 1.0),
        (1000, 1000, 100.0, 0.0),
        (1200, 1000, 100.0, 0.0),
        (0, 1000, None, None),
        (0, 1000, 0.0, None),
        (500, 0, 100.0, None),
    ],
)
def test_the_time_left_is_told_only_when_it_is_known(
    done: int, total: int, rate: float | None, left_s: float | None
) -> None:
    assert seconds_left(done, total, rate) == left_s


def test_a_meter_forgets_what_lies_before_its_window() -> None:
    meter = RateMeter(0.0)
    for moment, done in STEADY:
        meter.add(moment, done)
    assert len(meter._samples) <= 12
    assert meter.rate(59.0) == 100.0


def test_bytes_after_a_pause_begin_a_new_window() -> None:
    meter = RateMeter(0.0)
    for second in range(1, 31):
        meter.add(float(second), 0)
    assert (meter.rate(30.0), meter.idle_s(30.0)) == (0.0, 30.0)
    meter.add(31.0, 500)
    meter.add(32.0, 1000)
    assert (meter.rate(32.0), meter.idle_s(32.0)) == (500.0, 0.0)
