"""The one widget of our screens: lines, of which only those that changed are drawn again."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from skulkctl.tui.lines import BLANK, Line

STYLES = {
    "problem": Style(color="red", bold=True),
    "attention": Style(color="yellow"),
    "ok": Style(color="green"),
    "selected": Style(reverse=True),
    "muted": Style(dim=True),
    "strong": Style(bold=True),
}
PLAIN = Style()


class LinesView(Widget, can_focus=True):
    """Shows lines as they are; it never wraps and never scrolls by itself."""

    DEFAULT_CSS = "LinesView { width: 1fr; height: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []

    @property
    def lines(self) -> Sequence[Line]:
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Draw what is different from before; an unchanged screen costs nothing."""
        before, self._lines = self._lines, list(lines)
        for number in range(max(len(before), len(lines))):
            old = before[number] if number < len(before) else None
            new = lines[number] if number < len(lines) else None
            if old != new:
                self.refresh(Region(0, number, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        shown = self._lines[y] if y < len(self._lines) else BLANK
        segments = [
            Segment(text, self.rich_style + STYLES.get(role or "", PLAIN))
            for text, role in shown.pieces
        ]
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)
