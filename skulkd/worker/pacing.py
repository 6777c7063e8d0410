"""A share of the event loop: whoever works more than half of the time has to rest."""

import asyncio
from collections.abc import Callable
from types import TracebackType

SLICE_S = 0.01


class HalfOfTheTime:
    """`with` it around work, `await rest()` after it. Costs nothing below the limit."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._window = self._entered = clock()
        self._spent = 0.0

    def __enter__(self) -> None:
        self._entered = self._clock()
        if self._entered - self._window > 2 * SLICE_S:
            self._window, self._spent = self._entered, 0.0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._spent += self._clock() - self._entered

    async def rest(self) -> None:
        """Sleep as long as the work was, once that was a noticeable time."""
        if self._spent > SLICE_S:
            await asyncio.sleep(self._spent)
            self._window, self._spent = self._clock(), 0.0
