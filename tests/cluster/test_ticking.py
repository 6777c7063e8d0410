"""Work that is done again and again."""

from __future__ import annotations

import asyncio

import pytest

from skulkd.ticking import every


async def test_work_is_repeated_and_its_error_is_raised_where_it_was_asked_for() -> None:
    done: list[int] = []

    def work() -> None:
        done.append(len(done))
        if len(done) == 3:
            raise ValueError("the third time")

    with pytest.raises(ValueError, match="the third time"):
        await every(0.0, work)
    assert done == [0, 1, 2]


async def test_nothing_is_done_after_a_cancel() -> None:
    done: list[int] = []
    twice = asyncio.Event()

    def work() -> None:
        done.append(1)
        if len(done) == 2:
            twice.set()

    ticking = asyncio.create_task(every(0.0, work))
    await twice.wait()
    ticking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ticking
    before = len(done)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(done) == before
