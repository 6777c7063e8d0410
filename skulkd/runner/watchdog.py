"""A thread that ends work past its deadline and sends the pulse; faulthandler is its backup.

`mx.eval` releases the interpreter lock, so the thread notices when it takes too long. What holds
the lock (joining a group, some native calls) is ended by faulthandler, which needs no interpreter.
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
from skulkd.runner.protocol import Pulse
from skulkd.runner.recording.recorder import PhaseRecorder

_log = logging.getLogger("skulkd.runner")
_POLL_S = 0.25
# Faulthandler fires only when the thread could not: the interpreter lock was never released.
_FROZEN_GRACE_S = 10.0
_REARM_S = 2.0


@dataclass(eq=False, slots=True)
class Deadline:
    """One deadline that counts now."""

    what: str
    limit_s: float
    code: ExitCode
    advice: str
    until: float


class Watchdog:
    """`on_overrun` leaves the breadcrumb; after it the process ends with the deadline's code."""

    def __init__(
        self,
        on_overrun: Callable[[Deadline], None],
        end: Callable[[int], None] = os._exit,
        clock: Callable[[], float] = time.monotonic,
        frozen_grace_s: float = _FROZEN_GRACE_S,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_overrun = on_overrun
        self._end = end
        self._clock = clock
        self._frozen_grace_s = frozen_grace_s
        self._on_tick = on_tick
        self._deadlines: list[Deadline] = []
        self._armed_until = 0.0
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @contextmanager
    def limit(
        self, what: str, limit_s: float, code: ExitCode, advice: str
    ) -> Iterator[Callable[[], None]]:
        """The block must end, or call the function it is given, every `limit_s` seconds."""
        deadline = Deadline(what, limit_s, code, advice, self._clock() + limit_s)

        def progress() -> None:
            deadline.until = self._clock() + limit_s
            self._arm()

        self._deadlines.append(deadline)
        self._arm()
        try:
            yield progress
        finally:
            self._deadlines.remove(deadline)
            if self._deadlines:
                self._arm()
            else:
                self.rest()

    @property
    def working(self) -> bool:
        """Whether anything is under a deadline now."""
        return bool(self._deadlines)

    def rest(self) -> None:
        """Nothing is under a deadline: the process may sleep as long as it likes."""
        self._armed_until = 0.0
        faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        # Arming starts a thread, so steps that follow each other closely share one.
        until = min(deadline.until for deadline in self._deadlines) + self._frozen_grace_s
        if abs(until - self._armed_until) > _REARM_S:
            self._armed_until = until
            faulthandler.dump_traceback_later(
                max(until - self._clock(), 0.1), exit=True, file=sys.stderr
            )

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_POLL_S)
            self._on_tick()
            self.check()

    def check(self) -> None:
        """Look at every deadline once; the thread does it four times a second."""
        now = self._clock()
        for deadline in list(self._deadlines):
            if now > deadline.until:
                self._overrun(deadline)

    def _overrun(self, deadline: Deadline) -> None:
        _log.critical(
            "%s made no progress for %g s; ending with exit code %d. %s",
            deadline.what,
            deadline.limit_s,
            deadline.code,
            deadline.advice,
        )
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        try:
            self._on_overrun(deadline)
        finally:
            self._end(deadline.code)


EVERY_S = 1.0


class PulseSender:
    """`look` is called by the watchdog, several times a second; `send` may refuse."""

    def __init__(
        self,
        recorder: PhaseRecorder,
        send: Callable[[Pulse], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recorder = recorder
        self._send = send
        self._clock = clock
        self._was_busy = False
        self._next = 0.0

    def tick(self, busy: bool) -> None:
        """One pulse a second while busy, and a last one when the work is over."""
        now = self._clock()
        if busy and now < self._next:
            return
        if (busy or self._was_busy) and self._send(self._pulse(busy, now)):
            self._was_busy, self._next = busy, now + EVERY_S

    def _pulse(self, busy: bool, now: float) -> Pulse:
        recorder = self._recorder
        site = recorder.waiting
        return Pulse(
            busy=busy,
            step=recorder.step,
            moves=recorder.moves,
            site=None if site is None else site.detail,
            site_s=0.0 if site is None else round(max(0.0, now - site.since), 3),
        )
