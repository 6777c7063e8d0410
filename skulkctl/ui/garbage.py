"""When Python looks for garbage: while the keyboard is idle.

A search through everything takes 0.3 s with the timeline of 256 ranks in memory, and Python begins
one whenever enough was allocated, which is while a key is handled.
"""

from __future__ import annotations

import gc

QUIET_S = 3.0
"""So long after the last key a search is not noticed."""
EVERY_S = 60.0
LATEST_S = 600.0
"""Memory is not to grow without bound while keys are pressed without a pause."""
_NEVER = 1_000_000


class QuietCollector:
    """Puts full collections off until there is time for one."""

    def __init__(self, now_s: float) -> None:
        self._usual = gc.get_threshold()
        self._collected_s = now_s
        self._used_s = now_s

    def start(self) -> None:
        """Young objects are collected as always; that takes a few milliseconds."""
        gc.set_threshold(self._usual[0], self._usual[1], _NEVER)

    def stop(self) -> None:
        gc.set_threshold(*self._usual)

    def used(self, now_s: float) -> None:
        """Somebody pressed a key or moved the mouse."""
        self._used_s = now_s

    def collect(self, now_s: float) -> bool:
        """Collect if it is time to; to be called once in a while."""
        since_s = now_s - self._collected_s
        is_quiet = now_s - self._used_s >= QUIET_S
        if since_s < EVERY_S or (not is_quiet and since_s < LATEST_S):
            return False
        self._collected_s = now_s
        gc.collect()
        return True
