"""Cancelling: between any two steps, in the queue, in decode and in a long prefill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skulkd.runner.protocol import Cancel, GenerationOptions, Output, PrefillProgress, Status
from skulkd.wire.ids import TaskId
from skulkd.wire.runners import RunnerReady
from tests.runner.runner_process import Runner

NO_END = GenerationOptions(logit_bias={"2": -100.0})


@pytest.fixture
def single(fork: Callable[[], Runner], tiny: Path) -> Runner:
    """A runner with one slot and small prompt steps."""
    runner = fork()
    runner.configure(tiny, max_concurrent=1, prefill_step=16, prefix_cache_bytes=0)
    runner.become_ready()
    return runner


def test_a_cancelled_answer_frees_its_slot_for_who_waits(single: Runner) -> None:
    long = single.ask("for ever", NO_END, max_output_tokens=3000)
    single.until(Output, lambda m: m.task_id == long)
    waiting = single.ask("my turn", max_output_tokens=3)
    single.send(Cancel(task_id=long))
    assert single.answer(long).status.status == "Cancelled"
    assert single.answer(waiting).status.status == "Complete"
    marks = [(p.entry.phase, p.entry.event) for p in single.entries(long)]
    assert ("cancel_requested", "batch_cancel_pipe_observed") in marks
    assert ("cancel_observed", "batch_cancel_applied") in marks


def test_a_long_prefill_is_left_at_once(single: Runner) -> None:
    task = single.ask("z" * 3500)
    first = single.until(PrefillProgress, lambda m: m.task_id == task)
    assert first.processed < first.total
    single.send(Cancel(task_id=task))
    assert single.answer(task).status.status == "Cancelled"
    seen = [m for m in single.heard if isinstance(m, PrefillProgress) and m.task_id == task]
    assert seen[-1].processed < seen[-1].total
    marks = [(p.entry.event, p.entry.detail) for p in single.entries(task)]
    assert ("prefill_cancelled", "stream_generate_prefill") in marks
    single.until(Status, lambda m: isinstance(m.status, RunnerReady))
    assert single.chat("still there", max_output_tokens=2).status.status == "Complete"


def test_a_queued_request_is_cancelled_before_it_begins(single: Runner) -> None:
    long = single.ask("for ever", NO_END, max_output_tokens=3000)
    waiting = single.ask("never", max_output_tokens=3)
    single.send(Cancel(task_id=waiting))
    assert single.answer(waiting).status.status == "Cancelled"
    assert not single.answer(waiting).outputs
    single.send(Cancel(task_id=long))
    assert single.answer(long).status.status == "Cancelled"


def test_more_choices_than_slots_take_turns(single: Runner) -> None:
    answer = single.chat("many", extra=GenerationOptions(n=3), max_output_tokens=4)
    assert answer.status.status == "Complete"
    assert len({answer.text(choice) for choice in range(3)}) == 1


def test_cancelling_what_is_not_there_changes_nothing(single: Runner) -> None:
    single.send(Cancel(task_id=TaskId("nobody")))
    assert single.chat("fine", max_output_tokens=2).status.status == "Complete"


def test_others_keep_decoding_while_a_long_prompt_is_computed(
    fork: Callable[[], Runner], tiny: Path
) -> None:
    runner = fork()
    runner.configure(tiny, prefill_step=16)
    runner.become_ready()
    steady = runner.ask("go on", NO_END, max_output_tokens=3000)
    runner.until(Output, lambda m: m.task_id == steady)
    long = runner.ask("z" * 600, max_output_tokens=2)
    runner.answer(long)
    runner.send(Cancel(task_id=steady))
    steps = [
        index
        for index, m in enumerate(runner.heard)
        if isinstance(m, PrefillProgress) and m.task_id == long
    ]
    between = runner.heard[steps[0] : steps[-1]]
    answered = [m for m in between if isinstance(m, Output) and m.task_id == steady]
    assert len(steps) > 20
    assert len(answered) > len(steps) // 2
