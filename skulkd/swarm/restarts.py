"""Restarting work that failed, with growing pauses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from skulkd.swarm.pacing import retry_delay_ms

STABLE_S = 60.0
"""Work that ran for so long starts over with the shortest pause."""


async def restart_on_failure(
    work: Callable[[], Awaitable[None]],
    on_failure: Callable[[Exception], None],
    sleep: Callable[[float], Awaitable[None]],
    monotonic: Callable[[], float],
) -> None:
    """Run `work` again and again until cancelled; after failures wait 1 s, 2 s … 60 s."""
    failures = 0
    while True:
        began = monotonic()
        try:
            await work()
            failures = 0
        except Exception as error:  # noqa: BLE001 - whatever it is, the work starts again
            failures = 1 if monotonic() - began >= STABLE_S else failures + 1
            on_failure(error)
            await sleep(retry_delay_ms(failures) / 1000)
