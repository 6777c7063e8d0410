"""How far a long piece of work is, on stderr: bars on a terminal, a few plain lines elsewhere.

Elsewhere is one line for each new stage, each 10 % or each 10 s. It must not know what the work
is; rich draws the bars, and is imported only for a terminal.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from skulkctl.output.terminal import printable
from skulkctl.output.units import age_text, size_text

if TYPE_CHECKING:
    from skulkctl.output.progress_bars import Bars

_PIPE_S = 10.0
_PIPE_STEPS = 10
_RATE_WINDOW_S = 5.0
BYTES = "bytes"


class Part(NamedTuple):
    """One part of the work, such as a node: what it does, and how much of it is done."""

    name: str
    doing: str
    done: int | None = None
    total: int | None = None
    unit: str = BYTES


class Progress:
    """Shows progress. Leaving the block leaves the terminal clean."""

    def __init__(
        self,
        quiet: bool = False,
        *,
        on_pipes: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        # A dumb terminal cannot take a line back, so it gets lines like a pipe.
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._silent = quiet or not (self._terminal or on_pipes)
        self._clock = clock
        self._bars: Bars | None = None
        self._stage: str | None = None
        self._step = 0
        self._said_at = -_PIPE_S
        self._text: str | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, stage: str, text: str, parts: Sequence[Part] = (), title: str = "") -> None:
        """The present state: `parts` below a `title` on a terminal, `text` elsewhere.

        A new `stage` is always shown. Without parts a terminal shows the text.
        """
        if self._silent:
            return
        if not self._terminal:
            self._say(stage, text, fraction_of(parts))
            return
        if self._bars is None:
            from skulkctl.output.progress_bars import Bars

            self._bars = Bars(self._stream)
        self._bars.show(printable(title if parts else text), parts)

    def clear(self) -> None:
        """Take the bars away, so that something else can be written."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _say(self, stage: str, text: str, fraction: float | None) -> None:
        now, step = self._clock(), int((fraction or 0.0) * _PIPE_STEPS)
        waited = now - self._said_at >= _PIPE_S and text != self._text
        if stage == self._stage and step <= self._step and not waited:
            return
        self._stage, self._step, self._said_at, self._text = stage, step, now, text
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()


def fraction_of(parts: Sequence[Part]) -> float | None:
    """What is done of all parts that count bytes, or else of all; None when some is not known."""
    counted = [part for part in parts if part.unit == BYTES and part.total] or parts
    if not counted or not all(part.total and part.done is not None for part in counted):
        return None
    return sum(part.done or 0 for part in counted) / sum(part.total or 0 for part in counted)


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
