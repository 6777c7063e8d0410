"""What a rank waits for before its process is started, with the progress of that. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from skulkctl.placement.downloads import progress_text
from skulkctl.units import age_text
from skulkctl.views.read import integer, mapping, number, text

FILES, MEMORY, RANKS = "files", "memory", "ranks"
STALLED_S = 10.0
"""A transfer without a byte for this long is said to stand still."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One wait of one rank; bytes are of model files."""

    reason: str
    seconds: float
    detail: str | None = None
    done_bytes: int | None = None
    total_bytes: int | None = None
    bytes_per_second: float | None = None
    seconds_left: float | None = None
    still_s: float | None = None

    @property
    def text(self) -> str:
        """`1.2GiB/3.0GiB, 85.0MiB/s, 18s left`, or why nothing moves; may be empty."""
        if self.still_s is not None and self.still_s >= STALLED_S:
            moved = progress_text(self.done_bytes, self.total_bytes, None, None)
            parts = [moved, f"no bytes for {age_text(self.still_s)}"]
        else:
            rate, left_s = self.bytes_per_second, self.seconds_left
            parts = [progress_text(self.done_bytes, self.total_bytes, rate, left_s)]
        return ", ".join(part for part in (*parts, self.detail) if part)

    @property
    def short(self) -> str:
        """`files 40%`, for a narrow column."""
        if self.reason == FILES and self.total_bytes:
            return f"files {100 * (self.done_bytes or 0) // self.total_bytes}%"
        return f"wait: {self.reason}"

    def document(self) -> dict[str, object]:
        return {
            "reason": self.reason,
            "seconds": self.seconds,
            "detail": self.detail,
            "doneBytes": self.done_bytes,
            "totalBytes": self.total_bytes,
            "bytesPerSecond": self.bytes_per_second,
            "secondsLeft": self.seconds_left,
            "stillSeconds": self.still_s,
        }


def waiting_of(runner: object) -> Waiting | None:
    """The wait that a timeline tells of a runner."""
    found = mapping(runner, "waiting")
    reason = text(found, "reason")
    if reason is None:
        return None
    return Waiting(
        reason=reason,
        seconds=number(found, "seconds") or 0.0,
        detail=text(found, "detail"),
        done_bytes=integer(found, "doneBytes"),
        total_bytes=integer(found, "totalBytes"),
        bytes_per_second=number(found, "bytesPerSecond"),
        seconds_left=number(found, "secondsLeft"),
        still_s=number(found, "stillSeconds"),
    )
