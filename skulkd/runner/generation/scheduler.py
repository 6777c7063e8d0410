"""Which requests are admitted, and how much prompt a step reads. Pure.

Only rank 0 decides this; the other ranks follow its orders.
"""

from collections import deque
from collections.abc import Callable, Sequence

from skulkd.wire.ids import TaskId

# A step may take this long while others decode; a burst of prompts may take the longer time.
STEP_S = 0.5
BURST_S = 2.0
SMALLEST = 16
LARGEST = 2048
_MOST_ROWS = 8
# The best measurement counts, because a busy machine only makes steps slower. It fades.
_FADING = 0.98
# Longest gap between two requests of a burst.
GAP_S = 0.002
_REMEMBERED_BURSTS = 2


class AdmissionQueue:
    """First come, first served. A request needs as many slots as it has choices."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._waiting: dict[TaskId, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, task_id: TaskId, choices: int) -> None:
        self._waiting[task_id] = choices

    def remove(self, task_id: TaskId) -> None:
        self._waiting.pop(task_id, None)

    def admit(self, used: int) -> list[TaskId]:
        """Remove and return what fits beside the slots in use."""
        admitted: list[TaskId] = []
        for task_id, choices in self._waiting.items():
            # A request with more choices than slots is served alone.
            if used and used + choices > self._slots:
                break
            admitted.append(task_id)
            used += choices
        for task_id in admitted:
            del self._waiting[task_id]
        return admitted


class ArrivalWindow:
    """How long an idle runner waits for the rest of a burst of requests.

    Prompts that are read together share the cost of a step, and starting with the first alone
    makes all others wait until it is read. A single client never waits for a batch to fill.
    """

    def __init__(self) -> None:
        self._sizes = deque([1] * _REMEMBERED_BURSTS, maxlen=_REMEMBERED_BURSTS)

    def record(self, size: int) -> None:
        """So many requests were open after the first step."""
        self._sizes.append(size)

    def wait(self, count: Callable[[], int], accept_next: Callable[[float], bool]) -> None:
        """Accept as many requests as the last bursts had, while the gaps between them are short.

        `accept_next` accepts what arrives within a time, and returns whether anything did.
        """
        while 0 < count() < min(self._sizes) and accept_next(GAP_S):
            continue


class PrefillPacer:
    """Follows measured speed: on a slow machine steps are small, on a fast one they are large."""

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._rate: float | None = None
        self._token_s: float | None = None
        self._decode_s: float | None = None

    def observe_prefill(self, tokens: int, seconds: float) -> None:
        """A step read `tokens`, all rows together, in `seconds`. Small steps are ignored."""
        if tokens < SMALLEST // 2 or seconds <= 0:
            return
        rate = tokens / seconds
        # A long prompt slows down as it goes: follow at once downwards, slowly upwards.
        self._rate = rate if self._rate is None else min(rate, 0.5 * (self._rate + rate))
        # The fixed cost of a step is what a decoding step costs.
        alone_s = max(seconds - (self._decode_s or 0.0), 0.1 * seconds)
        self._token_s = _fading_minimum(self._token_s, alone_s / tokens)

    def observe_decode(self, seconds: float) -> None:
        """A decoding step took this long."""
        self._decode_s = _fading_minimum(self._decode_s, seconds)

    def rows(self, unread: Sequence[int]) -> int:
        """Prompts to read side by side, given how many tokens of each are unread.

        Side by side, all wait for all tokens, but the fixed cost of a step is paid once. One
        after the other, they wait for half of the tokens on average and for two steps each,
        because those that are read decode in between.
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


def _fading_minimum(known: float | None, new: float) -> float:
    return new if known is None else min(new, known / _FADING)
