"""The load curve of a model: samples to steps, the knee, the chart."""

from __future__ import annotations

import pytest

from skulkctl.chat.load_curve import Sample, StepItem, chart, percentile, summarise, with_knee
from skulkctl.output.terminal import width


def a_step(concurrency: int, rate: float) -> StepItem:
    step = summarise(concurrency, [Sample(0.1, 1.1, 11)], 0, 1.0)
    return {**step, "tokensPerSecond": rate}


def test_a_step_adds_up_its_samples() -> None:
    step = summarise(2, [Sample(0.2, 1.2, 11), Sample(0.6, 2.6, 11)], 1, 4.0)
    assert (step["requests"], step["failed"], step["tokens"]) == (2, 1, 22)
    assert (step["firstTokenSecondsP50"], step["firstTokenSecondsP90"]) == (0.2, 0.6)
    assert (step["tokensPerSecondPerClient"], step["tokensPerSecond"]) == (7.5, 5.5)


def test_a_step_without_an_answer_has_no_times() -> None:
    step = summarise(4, [], 4, 1.0)
    assert (step["firstTokenSecondsP50"], step["tokensPerSecondPerClient"]) == (None, None)
    assert step["tokensPerSecond"] == 0


@pytest.mark.parametrize(("percent", "expected"), [(50, 5.0), (90, 9.0), (100, 10.0), (1, 1.0)])
def test_percentiles_are_nearest_ranks(percent: int, expected: float) -> None:
    assert percentile([float(n) for n in range(1, 11)], percent) == expected


@pytest.mark.parametrize(
    ("rates", "knee"),
    [
        ([10.0], 1),
        ([10.0, 20.0, 40.0, 80.0], 8),
        ([10.0, 19.0, 20.0, 80.0], 2),
        ([10.0, 9.0, 8.0, 7.0], 1),
    ],
)
def test_the_knee_is_the_last_step_that_was_worth_its_clients(
    rates: list[float], knee: int
) -> None:
    steps = with_knee([a_step(2**n, rate) for n, rate in enumerate(rates)])
    assert [step["concurrency"] for step in steps if step["knee"]] == [knee]


def test_the_chart_is_as_high_as_the_rates_and_marks_the_knee() -> None:
    steps = with_knee([a_step(1, 30.0), a_step(2, 60.0)])
    lines = chart(steps, 60).splitlines()
    assert lines[0].strip() == "60.0 tokens/s"
    heights = [sum(line[at : at + 1] == "█" for line in lines) for at in (12, 21)]
    assert heights == [3, 6]
    assert "2 ◀ knee" in lines[-1]
    assert max(map(width, lines)) <= 60


def test_a_chart_that_does_not_fit_is_left_out() -> None:
    assert chart([a_step(1, 30.0), a_step(2, 60.0)], 30) == ""
    assert chart([a_step(1, 0.0)], 80) == ""
