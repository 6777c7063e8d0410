"""The one loop that waits for something in the cluster to happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from skulkctl.errors import CliError

T = TypeVar("T")
Look = Callable[[float], T | None]
"""What was waited for, or None. It is given the seconds that are left."""

EVERY_S = 0.25
LOOK_S = 5.0
"""How long one look may take: another endpoint of the context may answer meanwhile."""


def poll_until(
    look: Look[T],
    limit_s: float,
    *,
    every_s: float = EVERY_S,
    patience_s: float = 0.0,
    on_error: Callable[[CliError], None] = lambda error: None,
) -> T | None:
    """What `look` finds first; None when the time is up.

    It looks at least once. A CliError ends the wait when looks have failed for `patience_s`.
    """
    answered_at = time.monotonic()
    end = answered_at + limit_s
    while True:
        left_s = end - time.monotonic()
        try:
            found = look(max(left_s, 0.001))
        except CliError as error:
            if time.monotonic() - answered_at >= patience_s:
                raise
            on_error(error)
        else:
            if found is not None:
                return found
            answered_at = time.monotonic()
        left_s = end - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(every_s, left_s))
