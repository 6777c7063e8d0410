"""`skulk.log`: the daemon's own lines on disk, as JSON, in files of limited size and number.

A disk that is full or gone costs lines, which are counted, and never time; writing begins again
by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skulkd.log import LineQueue, Sink, log
from skulkd.rotating import RotatingFile, parts

RETRY_S = 10.0
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class LogFileLimits:
    max_bytes: int = 16 * MIB
    files: int = 5


class FileSink(Sink):
    """Drains its queue into a file that rotates. `trouble` says why lines are not written now."""

    def __init__(
        self,
        path: Path,
        limits: LogFileLimits,
        handler: LineQueue,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("file", -1, handler)
        self.path = path
        self.limits = limits
        self.trouble: str | None = None
        self.lost = 0
        self._clock = clock
        self._file: RotatingFile | None = None
        self._retry_at = float("-inf")

    @property
    def bytes_on_disk(self) -> int:
        """Of the current file and its older parts."""
        sizes = 0
        for part in parts(self.path, self.limits.files):
            try:
                sizes += part.stat().st_size
            except OSError:
                continue
        return sizes

    def stop(self, deadline_s: float = 1.0) -> None:
        super().stop(deadline_s)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: str) -> None:
        if self._file is None and self._clock() < self._retry_at:
            self.lost += 1
            return
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = RotatingFile(self.path, self.limits)
            self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")
        except OSError as error:
            self._give_up(error)
        else:
            self.trouble = None

    def _give_up(self, error: OSError) -> None:
        """For a while."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.lost += 1
        self._retry_at = self._clock() + RETRY_S
        if self.trouble is None:
            log.warning("the log file %s is not written: %s", self.path, error.strerror or error)
        self.trouble = error.strerror or str(error)
