"""Work that is done again and again on the event loop.

By timers: a task that sleeps wakes the loop twice each time, once for the timer and once for the
task, and that is most of what an idle daemon costs.
"""

import asyncio
from collections.abc import Callable


async def every(seconds: float, work: Callable[[], object]) -> None:
    """Do it now and then every so often, until cancelled. What it raises is raised here."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    timer: asyncio.TimerHandle | None = None

    def tick() -> None:
        nonlocal timer
        try:
            work()
        except Exception as error:  # noqa: BLE001  # not swallowed: whoever waits here gets it
            if not ended.done():
                ended.set_exception(error)
            return
        timer = loop.call_later(seconds, tick)

    tick()
    try:
        await ended
    finally:
        if timer is not None:
            timer.cancel()
