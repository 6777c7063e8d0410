"""How far a long piece of work is. Must not know who shows it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["download", "unpack", "convert", "copy"]


@dataclass(frozen=True, slots=True)
class Progress:
    """`total_bytes` is None while nobody knows it; `item` is the tensor or file at hand."""

    phase: Phase
    done_bytes: int
    total_bytes: int | None
    item: str


@dataclass(frozen=True, slots=True)
class FilesProgress:
    """Model files on their way to this node, as of now."""

    done_bytes: int
    total_bytes: int | None
    bytes_per_second: float | None
    seconds_left: float | None
    still_s: float
    """Since the last byte came."""
    detail: str | None = None
    """What goes on besides copying, or what went wrong last."""


Report = Callable[[Progress], None]


def no_report(_progress: Progress) -> None:
    """For callers that do not watch."""
