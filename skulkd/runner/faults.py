"""Faults on purpose, so that tests can show what a stuck group looks like. Off unless asked for.

`SKULK_FAULTS` holds faults separated by semicolons, each `name@rank` or `name@rank:seconds`; rank
`*` means every rank. Without seconds a fault lasts an hour. For tests only.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLE = "SKULK_FAULTS"
_LONG_S = 3600.0
FAULTS = {
    "stall_before_barrier": "sleep before the barrier that starts a request from idle",
    "stall_in_barrier": "sleep with the barrier entered",
    "skip_collective": "leave that barrier out, so that the group's messages no longer match",
    "delay": "sleep before every step",
    "stall_step": "sleep once, before the third step",
    "drop_task": "lose the next request's task, as if it had not been delivered",
    "wedge_warmup": "sleep in warm-up",
    "ignore_cancel": "do not act on cancels",
    "stall_connect": "sleep before joining the group",
}


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one rank: how long each lasts."""

    seconds: Mapping[str, float]

    def has(self, name: str) -> bool:
        return name in self.seconds

    def stall(self, name: str) -> None:
        """Sleep, if this fault is asked for."""
        if name in self.seconds:
            time.sleep(self.seconds[name])


def faults_of(rank: int, environ: Mapping[str, str] = os.environ) -> Faults:
    """Raises ValueError for a fault that does not exist: a test that misspells proves nothing."""
    seconds: dict[str, float] = {}
    for item in filter(None, environ.get(VARIABLE, "").split(";")):
        name, _, where = item.strip().partition("@")
        on, _, lasts = where.partition(":")
        if name not in FAULTS or not (on == "*" or on.isdigit()):
            raise ValueError(
                f"{VARIABLE}: {item!r} is no fault; known: {', '.join(sorted(FAULTS))}"
            )
        if on in ("*", str(rank)):
            seconds[name] = float(lasts) if lasts else _LONG_S
    return Faults(seconds)
