"""What requests cost in time and tokens, measured from the items of their streams."""

from __future__ import annotations

import pytest

from skulkd.observe.histogram import Histogram
from skulkd.requests.meter import MAX_MODELS, OTHER, RequestMeter
from skulkd.requests.metrics import is_stuck
from skulkd.runner.protocol import Output, OutputItem, PrefillProgress
from skulkd.wire.chat import CompletionTokensDetails, PromptTokensDetails, Usage
from skulkd.wire.ids import TaskId
from skulkd.wire.timeline import RunnerLive, RunnerStanding
from skulkd.worker.task_stream import TaskStream
from tests.observe.records import a_record

TASK = TaskId("t")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def output(*tokens: int, **extra: object) -> Output:
    items = [OutputItem(choice=at, tokens=count) for at, count in enumerate(tokens)]
    return Output.model_validate({"task_id": TASK, "items": items, **extra})


def usage(prompt: int) -> Usage:
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=0,
        total_tokens=prompt,
        prompt_tokens_details=PromptTokensDetails(),
        completion_tokens_details=CompletionTokensDetails(),
    )


def test_a_request_is_measured_from_its_arrival_to_its_last_token() -> None:
    clock = Clock()
    meter = RequestMeter(clock)
    clock.now = 103.0
    stream = TaskStream(TASK, 1 << 20, lambda: None)
    stream.push(PrefillProgress(task_id=TASK, processed=4, total=7), 10)
    stream.watch(meter.watch("m", arrived_at=100.0))
    clock.now = 105.0
    stream.push(output(1), 10)
    clock.now = 105.5
    stream.push(output(4, 3), 10)
    stream.push(output(0, usage=usage(7), queued_s=0.5), 10)
    figures = meter.models["m"]
    assert (figures.prompt_tokens, figures.completion_tokens) == (7, 8)
    assert (figures.first_token.count, figures.first_token.total) == (1, 5.0)
    assert (figures.queue.count, figures.queue.total) == (1, 3.5)
    assert figures.inter_token.count == 4
    assert dict(figures.inter_token.cumulative())["0.15"] == 4
    assert figures.inter_token.total == 0.5


def test_a_prompt_without_progress_is_counted_by_its_usage() -> None:
    meter = RequestMeter(Clock())
    meter.watch("m", 100.0)(output(2, usage=usage(9)))
    assert meter.models["m"].prompt_tokens == 9


def test_the_number_of_labels_is_bounded() -> None:
    meter = RequestMeter(Clock())
    for number in range(MAX_MODELS + 50):
        meter.watch(f"org/m{number}", 100.0)(output(1))
    assert len(meter.models) == MAX_MODELS + 1
    assert meter.models[OTHER].completion_tokens == 50
    meter.watch("org/m0", 100.0)(output(1))
    assert meter.models["org/m0"].completion_tokens == 2


def test_a_value_at_a_bound_belongs_to_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.add(value)
    assert histogram.cumulative() == [("0.1", 2), ("1.0", 3), ("+Inf", 4)]


@pytest.mark.parametrize(
    ("status", "busy", "still_s", "pending_s", "stuck"),
    [
        ("RunnerRunning", True, 31.0, None, True),
        ("RunnerRunning", True, 2.0, None, False),
        ("RunnerRunning", False, 500.0, None, False),
        ("RunnerReady", False, 500.0, 31.0, True),
        ("RunnerReady", False, 500.0, 5.0, False),
        ("RunnerLoading", True, 500.0, 500.0, False),
        ("RunnerWarmingUp", True, 40.0, None, False),
    ],
)
def test_a_rank_is_stuck_when_it_serves_and_does_not_move(
    status: str, busy: bool, still_s: float, pending_s: float | None, stuck: bool
) -> None:
    live = RunnerLive(
        busy=busy, step=3, moves=9, site_seconds=0.0, silent_seconds=0.0, still_seconds=still_s
    )
    record = a_record("node-a", rank=0)
    assert not is_stuck(record)
    facts = record.model_dump() | {"statusKind": status}
    assert is_stuck(RunnerStanding(**facts, live=live, pendingSeconds=pending_s)) is stuck
