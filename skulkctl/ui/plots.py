"""Plots that fill what is left of a page: series as tall sparklines in a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Grid
from textual.widgets import Sparkline

from skulkctl.ui.history import MOST
from skulkctl.ui.widgets import set_title

if TYPE_CHECKING:
    from skulkctl.ui.app import SkulkApp

SELDOM_S = 60.0
"""Readings of machines never stand still; a plot of them costs 13 KB, so it is drawn this often."""
TALL = 34
"""Rows of a page from which on there is room for plots."""

Series = tuple[str, Sequence[float], float | None]
"""What is plotted, with its present value in words; the values, oldest first; the highest that they
can have, or None for the highest that they had."""


def on_a_scale(values: Sequence[float], top: float | None) -> list[float]:
    """The values from 0 to the top. The first column is the axis; what is not known yet is empty.

    Textual draws the smallest value as nothing and the highest as a full column.
    """
    known = list(values[-MOST:])
    return [top or max(known, default=0.0), *[0.0] * (MOST - len(known)), *known]


class Plots(Grid):
    """So many plots, side by side and below each other; none where lines must be ASCII."""

    def __init__(self, count: int) -> None:
        super().__init__(id="plots")
        self._count = count
        self._painted: dict[Sparkline, float] = {}

    def compose(self) -> ComposeResult:
        for _ in range(self._count):
            yield Sparkline()

    def show(self, series: Sequence[Series], *, has_room: bool) -> None:
        """One plot for each series; those that have not changed are not drawn again."""
        app = cast("SkulkApp", self.app)
        self.display = has_room and bool(series) and not app.view.ascii
        if not self.display:
            return
        for plot, (title, values, top) in zip(self._plots(len(series)), series, strict=False):
            if (
                top is not None
                and app.setup.clock() < self._painted.get(plot, -SELDOM_S) + SELDOM_S
            ):
                continue
            self._painted[plot] = app.setup.clock()
            set_title(plot, title)
            shown = on_a_scale(values, top)
            if list(plot.data or ()) != shown:
                plot.data = shown

    def _plots(self, wanted: int) -> Iterator[Sparkline]:
        for number, plot in enumerate(self.query(Sparkline)):
            plot.display = number < wanted
            if plot.display:
                yield plot
