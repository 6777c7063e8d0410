"""Deadlines from outside the work: a thread that looks at clocks, and faulthandler behind it.

`mx.eval` releases the interpreter lock, so the thread sees its overrun. What holds the lock
(joining a group, some native calls) is ended by faulthandler, which needs no interpreter.
"""

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from skulkd.runner.exits import ExitCode

_log = logging.getLogger("skulkd.runner")
_POLL_S = 0.25
# Faulthandler fires only when the thread could not: the interpreter lock was never released.
_FROZEN_GRACE_S = 10.0
_REARM_S = 2.0


@dataclass(eq=False, slots=True)
class Guard:
    """One deadline that counts now."""

    what: str
    limit_s: float
    code: ExitCode
    advice: str
    until: float


class Watchdog:
    """`on_overrun` leaves the breadcrumb; after it the process ends with the guard's code."""

    def __init__(
        self,
        on_overrun: Callable[[Guard], None],
        end: Callable[[int], None] = os._exit,
        clock: Callable[[], float] = time.monotonic,
        frozen_grace_s: float = _FROZEN_GRACE_S,
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_overrun = on_overrun
        self._end = end
        self._clock = clock
        self._frozen_grace_s = frozen_grace_s
        self._on_look = on_look
        self._guards: list[Guard] = []
        self._armed_until = 0.0
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @contextmanager
    def limit(
        self, what: str, limit_s: float, code: ExitCode, advice: str
    ) -> Iterator[Callable[[], None]]:
        """The block must end, or call the function it is given, every `limit_s` seconds."""
        guard = Guard(what, limit_s, code, advice, self._clock() + limit_s)

        def progress() -> None:
            guard.until = self._clock() + limit_s
            self._arm()

        self._guards.append(guard)
        self._arm()
        try:
            yield progress
        finally:
            self._guards.remove(guard)
            if self._guards:
                self._arm()
            else:
                self.rest()

    @property
    def working(self) -> bool:
        """Whether anything is under a deadline now."""
        return bool(self._guards)

    def rest(self) -> None:
        """Nothing is under a deadline: the process may sleep as long as it likes."""
        self._armed_until = 0.0
        faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        # Arming starts a thread, so steps that follow each other closely share one.
        until = min(guard.until for guard in self._guards) + self._frozen_grace_s
        if abs(until - self._armed_until) > _REARM_S:
            self._armed_until = until
            faulthandler.dump_traceback_later(
                max(until - self._clock(), 0.1), exit=True, file=sys.stderr
            )

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_POLL_S)
            self._on_look()
            self.check()

    def check(self) -> None:
        """Look at every deadline once; the thread does it four times a second."""
        now = self._clock()
        for guard in list(self._guards):
            if now > guard.until:
                self._overrun(guard)

    def _overrun(self, guard: Guard) -> None:
        _log.critical(
            "%s made no progress for %g s; ending with exit code %d. %s",
            guard.what,
            guard.limit_s,
            guard.code,
            guard.advice,
        )
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        try:
            self._on_overrun(guard)
        finally:
            self._end(guard.code)
