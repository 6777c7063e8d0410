"""How many requests come together, so that it pays to wait a moment for the rest. Pure.

Prompts that are read side by side share what a step costs, and who starts with the first of a
burst keeps all others waiting until it is read. Who always comes alone waits for nobody.
"""

from collections import deque
from collections.abc import Callable

# Longest gap within a burst.
GAP_S = 0.002
_REMEMBERED = 2


class Company:
    """Remembers how many came the last times to a runner that had nothing to do."""

    def __init__(self) -> None:
        self._sizes = deque([1] * _REMEMBERED, maxlen=_REMEMBERED)

    def seen(self, size: int) -> None:
        """So many were there when the first step was done."""
        self._sizes.append(size)

    def wait(self, here: Callable[[], int], take_next: Callable[[float], bool]) -> None:
        """Let as many come as always did lately, unless one stays away for too long.

        `take_next` takes what comes within a time, and says whether anything did.
        """
        while 0 < here() < min(self._sizes) and take_next(GAP_S):
            continue
