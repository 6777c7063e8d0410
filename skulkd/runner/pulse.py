"""A runner's pulse: every second at work, its watchdog tells where the work stands.

Recorder entries are too dear to be written on every step, and say nothing about a process that
stopped in the middle. The pulse costs one small message a second, whatever the model does.
"""

import time
from collections.abc import Callable

from skulkd.runner.phases import PhaseRecorder
from skulkd.runner.protocol import Pulse

EVERY_S = 1.0


class Heart:
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

    def look(self, busy: bool) -> None:
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
