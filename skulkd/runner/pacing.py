"""How much prompt one step may take, so that nobody waits long for a step. Pure."""

# A step may take this long while others decode; a burst of prompts may take the longer time.
STEP_S = 0.5
BURST_S = 2.0
SMALLEST = 16
LARGEST = 2048
_MOST_ROWS = 8


class PrefillPacer:
    """Follows measured speed: on a slow machine steps are small, on a fast one they are large.

    With a fixed step it never changes, as a group of ranks needs.
    """

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._rate: float | None = None

    def observe(self, tokens: int, seconds: float) -> None:
        """A step took `tokens`, all rows together, in `seconds`. Small steps tell nothing."""
        if tokens < SMALLEST // 2 or seconds <= 0:
            return
        rate = tokens / seconds
        # A long prompt slows down as it goes: follow at once downwards, slowly upwards.
        self._rate = rate if self._rate is None else min(rate, 0.5 * (self._rate + rate))

    @property
    def rows(self) -> int:
        """Prompts side by side. On a slow machine one after the other gives earlier answers."""
        if self._fixed is not None or self._rate is None:
            return _MOST_ROWS
        return max(1, min(_MOST_ROWS, int(self._rate * BURST_S / SMALLEST)))

    def step(self, rows: int) -> int:
        """Tokens per row for the next step, a power of two unless fixed."""
        if self._fixed is not None:
            return self._fixed
        wanted = SMALLEST if self._rate is None else self._rate * STEP_S / max(rows, 1)
        size = SMALLEST
        while size * 2 <= wanted and size < LARGEST:
            size *= 2
        return size
