"""Prompt steps follow the machine's speed."""

from __future__ import annotations

import pytest

from skulkd.runner.generation.scheduler import BURST_S, LARGEST, SMALLEST, STEP_S, PrefillPacer


def paced(rate: float) -> PrefillPacer:
    pacer = PrefillPacer()
    for _ in range(20):
        pacer.observe_prefill(1000, 1000 / rate)
    return pacer


@pytest.mark.parametrize(
    ("rate", "rows", "step"),
    [(10, 1, SMALLEST), (1000, 1, 256), (1000, 4, 64), (1e6, 1, LARGEST), (64 / STEP_S, 1, 64)],
)
def test_a_step_takes_about_the_target_time(rate: float, rows: int, step: int) -> None:
    assert paced(rate).step(rows) == step


@pytest.mark.parametrize(("rate", "rows"), [(5, 1), (4 * SMALLEST / BURST_S, 4), (1e6, 8)])
def test_a_slow_machine_takes_prompts_one_after_the_other(rate: float, rows: int) -> None:
    assert paced(rate).rows([50]) == rows


def test_a_fixed_step_never_changes() -> None:
    pacer = PrefillPacer(fixed=100)
    pacer.observe_prefill(10_000, 0.001)
    assert (pacer.step(8), pacer.rows([])) == (100, 8)


def test_a_slower_step_counts_at_once_and_a_faster_one_by_half() -> None:
    pacer = paced(1000)
    pacer.observe_prefill(100, 100 / 200)
    assert pacer.step(1) == 64
    pacer.observe_prefill(100, 100 / 1000)
    assert pacer.step(1) == 256


def test_tiny_steps_say_nothing_about_speed() -> None:
    pacer = PrefillPacer()
    pacer.observe_prefill(1, 1.0)
    assert (pacer.step(1), pacer.rows([])) == (SMALLEST, 8)


def test_prompts_are_read_side_by_side_while_a_step_costs_more_than_their_tokens() -> None:
    pacer = PrefillPacer()
    pacer.observe_decode(0.010)
    pacer.observe_prefill(100, 0.110)  # so a token costs a millisecond
    assert pacer.rows([19, 19, 19]) == 8
    assert pacer.rows([21, 21, 21]) == 1
    assert pacer.rows([1, 41, 15]) == 8


def test_a_step_that_was_slowed_down_counts_little() -> None:
    pacer = PrefillPacer()
    pacer.observe_decode(0.010)
    pacer.observe_prefill(100, 0.110)
    pacer.observe_decode(0.500)
    assert pacer.rows([30]) == 1
    for _ in range(200):
        pacer.observe_decode(0.500)
    assert pacer.rows([30]) == 8
