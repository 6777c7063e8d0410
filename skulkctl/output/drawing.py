"""Tables for people, drawn by rich. Imported only when a terminal or colour is asked for.

What is shown and how wide it may be is decided in `layout.py`; a pipe never comes here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from skulkctl.output.layout import GUTTER, Cells, cell_lines
from skulkctl.output.terminal import role_of

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLES = {
    "problem": "red",
    "attention": "yellow",
    "ok": "green",
    "waiting": "blue",
    "muted": "dim",
    "strong": "bold",
}
_BAR = re.compile(r"([█▉▊▋▌▍▎▏]*)(░*)")
_NEARLY_FULL, _HALF_FULL = 0.9, 0.75


def drawn(renderable: RenderableType, width: int, colour: bool) -> str:
    """What rich makes of it, in lines of at most `width` cells."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def draw_table(
    columns: Sequence[Cells], widths: Sequence[int], rows: int, *, headers: bool, colour: bool
) -> str:
    """A table without a box, its header dimmed."""
    grid = Table(box=None, show_header=headers, header_style="", pad_edge=False)
    grid.padding = (0, len(GUTTER), 0, 0)
    for cells, size in zip(columns, widths, strict=True):
        grid.add_column(
            Text(cells.header, "dim"),
            justify="right" if cells.right else "left",
            width=size,
            no_wrap=True,
        )
    for row in range(rows):
        grid.add_row(*(_cell(*each, row) for each in zip(columns, widths, strict=True)))
    return drawn(grid, sum(widths) + len(GUTTER) * len(widths), colour)


def _cell(cells: Cells, size: int, row: int) -> Text:
    lines = cell_lines(cells, row, size)
    text = Text("\n".join(lines), end="")
    role = role_of(cells.texts[row]) if cells.status else None
    if role is not None:
        text.stylize(STYLES[role])
    elif cells.has_bar and (found := _BAR.match(lines[0])):
        full = len(found[1]) / max(len(found[0]), 1)
        text.stylize(_fullness(full), 0, len(found[1]))
        text.stylize("dim", len(found[1]), len(found[0]))
    return text


def _fullness(fraction: float) -> str:
    if fraction >= _NEARLY_FULL:
        return STYLES["problem"]
    return STYLES["attention"] if fraction >= _HALF_FULL else STYLES["ok"]
