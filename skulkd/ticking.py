"""Work that is done again and again on the event loop.

By timers: a task that sleeps wakes the loop twice each time, once for the timer and once for the
task, and that is most of what an idle daemon costs.
"""

import asyncio
from collections.abc import Callable


class Ticker:
    """`pause` says after each time how long to wait for the next."""

    def __init__(self, work: Callable[[], object], pause: Callable[[], float]) -> None:
        self._work = work
        self._pause = pause
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Begin now, go on until cancelled. What the work raises is raised here."""
        self._ended = asyncio.get_running_loop().create_future()
        self._tick()
        try:
            await self._ended
        finally:
            self._stop_timer()

    def hurry(self) -> None:
        """Do not wait for the rest of this pause."""
        if self._timer is not None:
            self._stop_timer()
            self._start_timer(0.0)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  # not swallowed: whoever waits for `run` gets it
            if self._ended is not None and not self._ended.done():
                self._ended.set_exception(error)
            return
        self._start_timer(self._pause())

    def _start_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def every(seconds: float, work: Callable[[], object]) -> None:
    """Do it now and then every so often, until cancelled. What it raises is raised here."""
    await Ticker(work, lambda: seconds).run()
