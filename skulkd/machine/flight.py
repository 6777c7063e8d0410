"""One reading that runs off the event loop, never twice at once, and never longer waited for
than its deadline. Knows nothing of what is read.
"""

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from skulkd.machine.redact import redact_text

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reading gave: a value, or the problem that there is none."""

    value: Any = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Flight:
    """A reading under way (or just ended)."""

    started: float
    started_at: datetime
    result: "concurrent.futures.Future[Outcome]"


class Collector:
    """Runs `read` in a daemon thread on demand; answers younger than `refresh_s` are reused.

    Daemon threads, because a pool of `concurrent.futures` would wait for a hung one at exit.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Any],
        *,
        deadline_s: float,
        refresh_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._read = read
        self._deadline_s = deadline_s
        self._refresh_s = refresh_s
        self._clock = clock
        self._flight: _Flight | None = None
        self._last: tuple[float, Outcome] | None = None

    async def ask(self) -> Outcome:
        """A fresh or fresh enough outcome; a reading that hangs is joined, not repeated."""
        if self._last is not None and self._clock() - self._last[0] < self._refresh_s:
            return self._last[1]
        flight = self._flight
        if flight is None or flight.result.done():
            flight = self._start()
        remaining = flight.started + self._deadline_s - self._clock()
        if remaining > 0 and not flight.result.done():
            await _wait(flight.result, remaining)
        if flight.result.done():
            return flight.result.result()
        since = flight.started_at.isoformat(timespec="seconds")
        return Outcome(
            problem=f"{self._name}: no answer within {self._deadline_s:g} s, waiting since {since}"
        )

    def latest(self) -> Outcome | None:
        """The last outcome, without waiting; the next reading is started when it is due.

        None before the first has ended.
        """
        last = self._last
        running = self._flight is not None and not self._flight.result.done()
        if not running and (last is None or self._clock() - last[0] >= self._refresh_s):
            self._start()
        return None if last is None else last[1]

    def _start(self) -> _Flight:
        flight = _Flight(self._clock(), datetime.now(UTC), concurrent.futures.Future())
        flight.result.set_running_or_notify_cancel()
        self._flight = flight
        thread = threading.Thread(
            target=self._run, args=(flight,), name=f"read-{self._name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # no more threads to have
            flight.result.set_result(Outcome(problem=f"{self._name}: {error}"))
        return flight

    def _run(self, flight: _Flight) -> None:
        try:
            outcome = Outcome(value=self._read())
        except Exception as error:  # noqa: BLE001 - root of the thread: a failure is an outcome
            outcome = self._failed(error)
        # Kept even when nobody waits any more: a slow answer is good for the next question.
        self._last = (self._clock(), outcome)
        flight.result.set_result(outcome)

    def _failed(self, error: Exception) -> Outcome:
        problem = redact_text(f"{self._name}: {str(error) or type(error).__name__}")
        if self._last is None or self._last[1].problem != problem:
            # Once per change, because the same reading fails every few seconds.
            _log.warning("machine reading failed: %s", problem)
            _log.debug("machine reading failed", exc_info=error)
        return Outcome(problem=problem)


async def _wait(result: "concurrent.futures.Future[Outcome]", timeout_s: float) -> None:
    """Wait until the result is there or the time is over; never cancels the reading."""
    waiter = asyncio.wrap_future(result)
    try:
        await asyncio.wait({waiter}, timeout=timeout_s)
    finally:
        # A running reading ignores this; it only stops the loop from being called later.
        waiter.cancel()
