"""How far a long piece of work is, on stderr: one line that is drawn over on a terminal.

Elsewhere it is one line for each 10 % or 10 s. It must not know what the work is.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

from skulkctl.screen import printable, width
from skulkctl.units import age_text, size_text

_BAR_CELLS = 20
_REDRAW_S = 0.1
_PIPE_S = 10.0
_PIPE_STEPS = 10
_RATE_WINDOW_S = 5.0


class ProgressLine:
    """Show what goes on; leave nothing behind on a terminal."""

    def __init__(
        self,
        quiet: bool = False,
        *,
        on_pipes: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._silent = quiet or not (self._terminal or on_pipes)
        self._clock = clock
        self._drawn = False
        self._stage: str | None = None
        self._step = 0
        self._said_at = -_PIPE_S
        self._text: str | None = None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, stage: str, text: str, fraction: float | None = None) -> None:
        """The present state. `stage` names the part of the work: a new one is always shown."""
        if self._silent:
            return
        if self._terminal:
            self._draw(stage, text, fraction)
        else:
            self._say(stage, text, fraction)

    def clear(self) -> None:
        """Take the line away, so that something else can be written."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False

    def _draw(self, stage: str, text: str, fraction: float | None) -> None:
        now = self._clock()
        if self._drawn and stage == self._stage and now - self._said_at < _REDRAW_S:
            return
        self._stage, self._said_at = stage, now
        shown = f"{bar(fraction)} {text}" if fraction is not None else text
        self._stream.write(f"\r{_cut(printable(shown), _columns())}\x1b[K")
        self._stream.flush()
        self._drawn = True

    def _say(self, stage: str, text: str, fraction: float | None) -> None:
        now, step = self._clock(), int((fraction or 0.0) * _PIPE_STEPS)
        waited = now - self._said_at >= _PIPE_S and text != self._text
        if stage == self._stage and step <= self._step and not waited:
            return
        self._stage, self._step, self._said_at, self._text = stage, step, now, text
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()


class Transfer:
    """Bytes that move: the rate over the last seconds, and the text that tells of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def text(self, label: str, done_bytes: int, total_bytes: int | None) -> str:
        return transfer_text(label, done_bytes, total_bytes, self._rate(done_bytes))

    def _rate(self, done_bytes: int) -> float | None:
        now = self._clock()
        if self._seen and done_bytes < self._seen[-1][1]:
            self._seen.clear()  # another phase began
        self._seen.append((now, done_bytes))
        while now - self._seen[0][0] > _RATE_WINDOW_S and len(self._seen) > 2:
            self._seen.popleft()
        first_at, first_bytes = self._seen[0]
        return (done_bytes - first_bytes) / (now - first_at) if now > first_at else None


def transfer_text(
    label: str, done_bytes: int, total_bytes: int | None, rate_bytes_s: float | None
) -> str:
    """`convert 45 %: 1.2 GiB of 2.7 GiB, 85.0 MiB/s, 18s left`, as far as it is known."""
    if total_bytes:
        head = f"{label} {100 * done_bytes // total_bytes} %: {size_text(done_bytes)} of "
        parts = [f"{head}{size_text(total_bytes)}"]
    else:
        parts = [f"{label}: {size_text(done_bytes)}"]
    if rate_bytes_s:
        parts.append(f"{size_text(int(rate_bytes_s))}/s")
        if total_bytes and done_bytes < total_bytes:
            parts.append(f"{age_text((total_bytes - done_bytes) / rate_bytes_s)} left")
    return ", ".join(parts)


def bar(fraction: float) -> str:
    """`[#####---------------]`."""
    filled = round(min(max(fraction, 0.0), 1.0) * _BAR_CELLS)
    return f"[{'#' * filled}{'-' * (_BAR_CELLS - filled)}]"


def _columns() -> int:
    # The last cell stays free: some terminals wrap as soon as it is written.
    return max(shutil.get_terminal_size().columns - 1, 1)


def _cut(text: str, cells: int) -> str:
    while width(text) > cells:
        text = text[:-1]
    return text
