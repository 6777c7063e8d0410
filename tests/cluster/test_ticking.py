"""Work that is done again and again."""

from __future__ import annotations

import asyncio

import pytest

from skulkd.ticking import Ticker, every


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


async def test_a_pause_can_be_cut_short_and_the_next_one_is_asked_for() -> None:
    done: asyncio.Queue[int] = asyncio.Queue()
    pauses: list[float] = []

    def pause() -> float:
        pauses.append(3600.0)
        return pauses[-1]

    ticker = Ticker(lambda: done.put_nowait(1), pause)
    ticker.hurry()  # nothing runs yet
    ticking = asyncio.create_task(ticker.run())
    async with asyncio.timeout(300):
        for _ in range(2):
            await done.get()
            ticker.hurry()
            ticker.hurry()
        await done.get()
    assert done.empty()
    assert len(pauses) == 3
    ticking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ticking
