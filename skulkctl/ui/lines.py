"""Lines of a screen: pieces of text with the role that colours them. Pure.

The same lines become strips of a widget and the plain text of `--once`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skulkctl.output.terminal import paint, printable, width

Piece = tuple[str, str | None]
"""Text and its role, or none. `theme.py` gives roles their colours; `a/b` is a cell of which the
left half has the colour of `a` and the right half that of `b`, and `@a` is text on that colour."""

MORE = "»"
_ASCII = str.maketrans(
    {
        "─": "-", "━": "=", "┏": "+", "┓": "+", "┗": "+", "┛": "+", "┃": "|", "│": "|",
        "╭": "+", "╮": "+", "╰": "+", "╯": "+", "┐": "+", "┘": "+", "┤": "+", "┼": "+", "├": "+",
        "┊": ":", "═": "=", "╌": "-", "◀": "<", "▸": ">", "▕": "|", "▏": "|", "┌": "+", "└": "+",
        "…": ":", "±": "~", "·": ".", "→": ">", "×": "x", "▮": "#", "▯": ".", MORE: ">",
        "●": "*", "▲": "!", "✖": "X", "◌": "~", "♛": "M", "◆": "1", "✕": "x", "°": "'", "–": "-",
        "█": "#", "▓": "S", "▒": "+", "░": ".", "▌": "#", "▐": "#", "▍": "#", "▎": "#", "▊": "#",
        "▉": "#", "▋": "#", "▁": "_", "▂": ".", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "%",
        "≡": "=", "▚": "%", "▞": "@", "╷": ".", "←": "<", "↑": "^", "↓": "v",
    }
)  # fmt: skip
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"


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
    pairs = ((piece, None) if isinstance(piece, str) else piece for piece in pieces)
    return Line(tuple((printable(text), role) for text, role in pairs if text))


def spread(left: str, right: str, columns: int, role: str | None = None) -> Line:
    """Text at both ends of the screen; the left end gives way."""
    room = max(0, columns - width(right) - 1)
    shown = clip(left, room)
    gap = columns - width(shown) - width(right)
    return line((shown + " " * max(gap, 1) + right, role)).cut(columns)


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


def bar(share: float, cells: int, role: str) -> list[Piece]:
    """A ratio as a bar; what is missing to the whole is shaded, so that it works without colour."""
    eighths = round(min(max(share, 0.0), 1.0) * cells * 8)
    full, part = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[part] if part else "")
    return [(filled, role), ("░" * (cells - len(filled)), "muted")]


def stacked_bar(parts: Sequence[tuple[float, str, str]], cells: int) -> list[Piece]:
    """Shares, each with its fill and role, side by side; every share above zero is seen."""
    total = sum(share for share, _, _ in parts) or 1.0
    sizes = [max(1, round(share / total * cells)) if share > 0 else 0 for share, _, _ in parts]
    while sum(sizes) > cells:
        sizes[sizes.index(max(sizes))] -= 1
    while sum(sizes) < cells and any(sizes):
        sizes[sizes.index(max(sizes))] += 1
    return [(fill * size, role) for size, (_, fill, role) in zip(sizes, parts, strict=True) if size]


def spark(values: Sequence[float], cells: int, top: float | None = None) -> str:
    """The newest values as heights, oldest left. `top` is what a full column means."""
    shown = [max(0.0, value) for value in values[-cells:]]
    highest = max([top or 0.0, *shown]) or 1.0
    heights = (_HEIGHTS[min(7, round(value / highest * 7))] for value in shown)
    return "".join(heights).rjust(cells)


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


def fit_lines(lines: Iterable[Line], columns: int, ascii_only: bool) -> list[Line]:
    """The lines cut to the width of the screen; with `ascii_only` in letters of every terminal."""
    shown = [drawn.cut(columns) for drawn in lines]
    return [_to_ascii(drawn) for drawn in shown] if ascii_only else shown


def _to_ascii(drawn: Line) -> Line:
    return Line(tuple((to_ascii(text), role) for text, role in drawn.pieces))


def to_ascii(text: str) -> str:
    """Only letters that every terminal has; the width stays the same."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def plain_text(lines: Iterable[Line], colour: bool = False) -> str:
    """The screen as text."""
    shown = (drawn.coloured() if colour else drawn.plain for drawn in lines)
    return "".join(text.rstrip() + "\n" for text in shown)
