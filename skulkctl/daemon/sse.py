"""Server-sent events: bytes in any pieces become comments and data. Pure.

It must not know what the events mean, nor where the bytes come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"


class Comment(NamedTuple):
    """A line that begins with a colon; Skulk puts ids, progress and statistics there."""

    text: str


class Data(NamedTuple):
    """One event's data, its lines joined."""

    text: str


Frame = Comment | Data


class FrameParser:
    """Feed it bytes; it gives every frame that has been completed by them."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._ended_in_return = False
        self._at_start = True

    def feed(self, piece: bytes) -> list[Frame]:
        """The frames that end in this piece. An event without its blank line never comes out."""
        if not piece:
            return []
        if self._ended_in_return and piece.startswith(b"\n"):
            # The second half of a line end that was cut in two.
            piece, self._ended_in_return = piece[1:], False
            if not piece:
                return []
        self._ended_in_return = piece.endswith(b"\r")
        lines = (self._rest + piece).splitlines(keepends=True)
        self._rest = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        return [frame for line in lines for frame in self._read(line.rstrip(b"\r\n"))]

    def _read(self, line: bytes) -> Iterator[Frame]:
        if self._at_start:
            line, self._at_start = line.removeprefix(_BOM), False
        if not line:
            if self._data:
                yield Data(_text(b"\n".join(self._data)))
                self._data = []
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not field:
            yield Comment(_text(value))
        elif field == b"data":
            self._data.append(value)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
