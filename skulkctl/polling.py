"""The one loop that waits for something in the cluster to happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from skulkctl.errors import CliError

S = TypeVar("S")
T = TypeVar("T")

EVERY_S = 0.25
LOOK_S = 5.0
"""How long one request may take: another endpoint of the context may answer meanwhile."""


def poll_until(
    fetch: Callable[[float], S],
    find: Callable[[S], T | None],
    limit_s: float,
    *,
    every_s: float = EVERY_S,
    patience_s: float = 0.0,
    on_error: Callable[[CliError], None] = lambda error: None,
) -> T | None:
    """What `find` sees first in what `fetch` brings; None when the time is up.

    It fetches at least once, and is given the seconds that are left. A CliError of `fetch` ends
    the wait when it has failed for `patience_s`, one of `find` at once.
    """
    answered_at = time.monotonic()
    end = answered_at + limit_s
    while True:
        try:
            fetched = fetch(max(end - time.monotonic(), 0.001))
        except CliError as error:
            if time.monotonic() - answered_at >= patience_s:
                raise
            on_error(error)
        else:
            found = find(fetched)
            if found is not None:
                return found
            answered_at = time.monotonic()
        left_s = end - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(every_s, left_s))
