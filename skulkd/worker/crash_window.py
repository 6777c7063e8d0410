"""When to stop restarting: crashes counted in a sliding window. Knows no processes."""

from collections import deque
from collections.abc import Callable

from skulkd.worker.options import CrashPolicy


class CrashWindow:
    """The circuit opens at the limit and stays open until somebody closes it."""

    def __init__(self, policy: CrashPolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._crashes: deque[float] = deque()
        self._open = False

    def record(self) -> None:
        """Count a crash that happened now."""
        self._crashes.append(self._clock())
        if self.count >= self._policy.limit:
            self._open = True

    @property
    def count(self) -> int:
        """Crashes that still count."""
        oldest = self._clock() - self._policy.window_s
        while self._crashes and self._crashes[0] <= oldest:
            self._crashes.popleft()
        return len(self._crashes)

    @property
    def open(self) -> bool:
        return self._open

    @property
    def delay_s(self) -> float:
        """How long to wait before the next start."""
        return self._policy.first_delay_s * 2.0 ** max(0, self.count - 1)

    def close(self) -> None:
        """An operator wants another try."""
        self._crashes.clear()
        self._open = False
