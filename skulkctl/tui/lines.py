"""Lines of a screen: pieces of text with the role that colours them. Pure.

The same lines become strips of a widget and the plain text of `--once`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from skulkctl.screen import paint, printable, width

Piece = tuple[str, str | None]
"""Text, and one of the roles problem, attention, ok, selected, muted, strong; or none."""

MORE = "»"
_ASCII = str.maketrans(
    {
        "─": "-", "━": "=", "┏": "+", "┓": "+", "┗": "+", "┛": "+", "┃": "|", "│": "|",
        "…": ":", "±": "~", "·": ".", "→": ">", "×": "x", "▮": "#", "▯": ".", MORE: ">",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One line; never wider than the screen it was made for."""

    pieces: tuple[Piece, ...] = ()

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.pieces)

    def cut(self, columns: int) -> Line:
        """The line without what does not fit; a mark at its end says that there is more."""
        if width(self.plain) <= columns:
            return self
        left, kept = columns - width(MORE), []
        for text, role in self.pieces:
            short = clip(text, left)
            kept.append((short, role))
            left -= width(short)
            if left <= 0:
                break
        return Line((*kept, (MORE, "muted")))

    def coloured(self) -> str:
        return "".join(paint(text, role) for text, role in self.pieces)


BLANK = Line()


def line(*pieces: Piece | str) -> Line:
    """A line of pieces; bare text has no role. Control characters do not get through."""
    told = ((piece, None) if isinstance(piece, str) else piece for piece in pieces)
    return Line(tuple((printable(text), role) for text, role in told if text))


def spread(left: str, right: str, columns: int, role: str | None = None) -> Line:
    """Text at both ends of the screen; the left end gives way."""
    room = max(0, columns - width(right) - 1)
    told = clip(left, room)
    gap = columns - width(told) - width(right)
    return line((told + " " * max(gap, 1) + right, role)).cut(columns)


def clip(text: str, cells: int) -> str:
    """The text without what does not fit into so many cells."""
    if width(text) <= cells:
        return text
    kept = ""
    for letter in text:
        if width(kept) + width(letter) > cells:
            break
        kept += letter
    return kept


def shorten(text: str, cells: int) -> str:
    """The same with a mark where something is missing."""
    return text if width(text) <= cells else clip(text, cells - width(MORE)) + MORE


def wrap(text: str, columns: int) -> list[str]:
    """The text in lines of whole words."""
    rows: list[str] = [""]
    for word in text.split():
        longer = f"{rows[-1]} {word}".strip()
        if width(longer) <= columns or not rows[-1]:
            rows[-1] = clip(longer, columns)
        else:
            rows.append(clip(word, columns))
    return rows


def to_ascii(one: Line) -> Line:
    """Only letters that every terminal has; width stays the same."""
    return Line(tuple((text.translate(_ASCII).encode("ascii", "replace").decode(), role)
                      for text, role in one.pieces))  # fmt: skip


def plain_text(lines: Iterable[Line], colour: bool = False) -> str:
    """The screen as text."""
    return "".join((one.coloured() if colour else one.plain).rstrip() + "\n" for one in lines)
