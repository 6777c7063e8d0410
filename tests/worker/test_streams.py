"""The stream of one answer: order, bounds, end and cancel; and the share of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from skulkd.runner.protocol import Output, OutputItem
from skulkd.wire.ids import TaskId
from skulkd.worker.process import SLICE_S, LoopShare
from skulkd.worker.task_stream import TaskEnded, TaskStream
from tests.worker.rig import read_all

TASK = TaskId("task")


def an_output(text: str) -> Output:
    return Output(task_id=TASK, items=[OutputItem(text=text)])


def a_stream(limit_bytes: int = 1000) -> tuple[TaskStream, list[str]]:
    cancelled: list[str] = []
    return TaskStream(TASK, limit_bytes, lambda: cancelled.append("cancelled")), cancelled


async def test_items_come_in_order_and_the_end_comes_last() -> None:
    stream, _ = a_stream()
    reading = asyncio.create_task(read_all(stream))
    for text in "abc":
        assert stream.push(an_output(text), 10)
        await asyncio.sleep(0)
    stream.end(TaskEnded("Complete"))
    assert await reading == ("abc", TaskEnded("Complete"))
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_what_lies_unread_is_bounded_by_bytes() -> None:
    stream, _ = a_stream(limit_bytes=25)
    assert [stream.push(an_output(text), 10) for text in "abc"] == [True, True, False]
    await anext(stream)
    assert stream.push(an_output("d"), 10)
    stream.end(TaskEnded("Failed", "slow_reader"))
    text, ended = await read_all(stream)
    assert text == "bd"
    assert ended.error_type == "slow_reader"


async def test_one_item_larger_than_the_bound_still_passes() -> None:
    stream, _ = a_stream(limit_bytes=5)
    assert stream.push(an_output("large"), 100)


async def test_closing_cancels_once_and_drops_what_comes_later() -> None:
    stream, cancelled = a_stream(limit_bytes=5)
    await stream.aclose()
    await stream.aclose()
    assert cancelled == ["cancelled"]
    assert stream.push(an_output("late"), 10)
    assert stream.push(an_output("later"), 10)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_closing_after_the_end_cancels_nothing() -> None:
    stream, cancelled = a_stream()
    stream.end(TaskEnded("Complete"))
    await stream.aclose()
    assert cancelled == []


async def test_closing_wakes_a_reader_that_waits() -> None:
    stream, _ = a_stream()
    reading = asyncio.create_task(anext(stream, None))
    await asyncio.sleep(0)
    await stream.aclose()
    assert await asyncio.wait_for(reading, 300) is None


@pytest.mark.parametrize(
    ("ended", "retryable"),
    [
        (TaskEnded("Complete"), False),
        (TaskEnded("Cancelled"), False),
        (TaskEnded("Failed", "runner_crashed"), True),
        (TaskEnded("Failed", "node_stopping"), True),
        (TaskEnded("Failed"), True),
        (TaskEnded("TimedOut"), True),
        (TaskEnded("Cancelled", "instance_deleted"), True),
        (TaskEnded("Failed", "invalid_request_error"), False),
        (TaskEnded("Failed", "slow_reader"), False),
    ],
)
def test_only_what_may_work_next_time_is_retryable(ended: TaskEnded, retryable: bool) -> None:
    assert ended.retryable is retryable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("work_s", "pause_s", "rests"),
    [
        pytest.param(SLICE_S / 10, 0.0, True, id="all of the time"),
        pytest.param(SLICE_S / 10, SLICE_S / 2, False, id="a little now and then"),
        pytest.param(SLICE_S / 10, SLICE_S / 5, False, id="a third of the time"),
    ],
)
async def test_only_who_works_most_of_the_time_has_to_rest(
    work_s: float, pause_s: float, rests: bool
) -> None:
    clock = Clock()
    pace = LoopShare(clock)
    rested = 0
    for _ in range(100):
        with pace:
            clock.now += work_s
        resting = asyncio.ensure_future(pace.rest())
        await asyncio.sleep(0)
        rested += not resting.done()
        await resting
        clock.now += pause_s
    assert bool(rested) is rests
