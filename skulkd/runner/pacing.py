"""How much prompt one step may take, so that nobody waits long for a step. Pure."""

from collections.abc import Sequence

# A step may take this long while others decode; a burst of prompts may take the longer time.
STEP_S = 0.5
BURST_S = 2.0
SMALLEST = 16
LARGEST = 2048
_MOST_ROWS = 8
# Steps that were slowed down by somebody else say little: the best one seen counts, and fades.
_FADING = 0.98


class PrefillPacer:
    """Follows measured speed: on a slow machine steps are small, on a fast one they are large.

    With a fixed step it never changes, as a group of ranks needs.
    """

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._rate: float | None = None
        self._token_s: float | None = None
        self._decode_s: float | None = None

    def observe(self, tokens: int, seconds: float) -> None:
        """A step took `tokens`, all rows together, in `seconds`. Small steps tell nothing."""
        if tokens < SMALLEST // 2 or seconds <= 0:
            return
        rate = tokens / seconds
        # A long prompt slows down as it goes: follow at once downwards, slowly upwards.
        self._rate = rate if self._rate is None else min(rate, 0.5 * (self._rate + rate))
        # What a step costs however little it does is what decoding costs.
        alone_s = max(seconds - (self._decode_s or 0.0), 0.1 * seconds)
        self._token_s = _least(self._token_s, alone_s / tokens)

    def decoded(self, seconds: float) -> None:
        """A decoding step took this long."""
        self._decode_s = _least(self._decode_s, seconds)

    def rows(self, unread: Sequence[int]) -> int:
        """Prompts to read side by side, given how much of each is still to be read.

        Side by side, all wait for all tokens, but for the fixed cost of a step only once. One
        after the other, they wait for half of the tokens on average, and for two steps each,
        because those that are through decode in between.
        """
        if self._fixed is not None or self._rate is None:
            return _MOST_ROWS
        if unread and self._token_s is not None and self._decode_s is not None:
            each = min(sum(unread) / len(unread), LARGEST)
            if each * self._token_s > 2 * self._decode_s:
                return 1
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


def _least(known: float | None, new: float) -> float:
    return new if known is None else min(new, known / _FADING)
