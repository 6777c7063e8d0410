"""The last log lines of this daemon, kept in memory so that an operator can ask for them.

A logging handler like any other: it never waits and never fails the code that logs.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

CAPACITY = 5000


@dataclass(frozen=True, slots=True)
class KeptLine:
    """One line; its number counts from the start of the daemon."""

    number: int
    at: str
    level: str
    text: str


class LogRing(logging.Handler):
    """Keeps formatted lines, the newest `capacity` of them."""

    def __init__(self, formatter: logging.Formatter, capacity: int = CAPACITY) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(formatter)
        self._lines: deque[KeptLine] = deque(maxlen=capacity)
        self._written = 0
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - a bad log call must not break the code that makes it
            self.handleError(record)
            return
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        with self._guard:
            self._lines.append(KeptLine(self._written, at, record.levelname, text))
            self._written += 1

    @property
    def written(self) -> int:
        """How many lines there have been; the cursor after the newest."""
        return self._written

    def last(self, count: int) -> list[KeptLine]:
        with self._guard:
            return list(self._lines)[-count:]

    def after(self, cursor: int, count: int) -> tuple[list[KeptLine], int]:
        """The first lines from this number on, and how many before them are lost."""
        with self._guard:
            kept = [line for line in self._lines if line.number >= cursor]
            first = self._lines[0].number if self._lines else self._written
        return kept[:count], max(0, first - cursor)
