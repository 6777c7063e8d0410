"""Traces of requests: a list, a waterfall over the ranks, and where the time went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from skulkctl.ui.lines import BLANK, line
from skulkctl.ui.page import Page
from skulkctl.ui.traces_page import HEADERS, Zoom, stats_lines, trace_rows, waterfall_lines
from skulkctl.ui.widgets import LinesView, Rows

if TYPE_CHECKING:
    from skulkctl.ui.snapshot import Snapshot
    from skulkd.wire.tracing import TraceItems, TraceResponse


class TracesScreen(Page):
    """The newest traces; the selected one is drawn below."""

    EVERY_S = 10.0
    HELP = """
    # Traces

    Where a request spent its time, on every rank. Tracing is switched on with `skulkctl trace on`.
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "zoom(0.5)", "zoom in", id="traces.in"),
        Binding("minus", "zoom(2.0)", "zoom out", id="traces.out"),
        Binding("shift+left,h", "move(-0.25)", "earlier", id="traces.earlier"),
        Binding("shift+right,l", "move(0.25)", "later", id="traces.later"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._list: TraceItems | None = None
        self._traces: dict[str, TraceResponse] = {}
        self._zoom = Zoom()
        self._wanted = ""
        """The trace that was asked for last."""

    def body(self) -> Iterator[Widget]:
        yield Rows(id="traces", opens=False)
        with VerticalScroll(id="waterfall", can_focus=False):
            yield LinesView(id="spans")

    async def fetch(self) -> None:
        reader = self.skulk.setup.reader
        if reader is not None:
            found = await self.skulk.attempt("no traces", reader.traces())
            self._list = found or self._list

    def draw(self, snapshot: Snapshot) -> None:
        columns = self.columns
        table, view = self.query_one(Rows), self.query_one("#spans", LinesView)
        table.fill(HEADERS, trace_rows(self._list.traces if self._list else [], columns))
        trace = self._traces.get(table.selected_key or "")
        if trace is None and table.selected_key:
            self._fetch_once(table.selected_key)
        if self._list is not None and not self._list.traces:
            hint = "no traces yet; trace new requests with:  skulkctl trace on"
            view.show([BLANK, line((f" {hint}", "muted"))])
        elif trace is None:
            view.show([BLANK, line((" asking the nodes", "muted"))])
        else:
            drawn = waterfall_lines(trace, self._zoom, columns)
            view.show([*drawn, *stats_lines(trace, columns)])
        if self.focused is None:
            table.focus()

    def on_data_table_row_highlighted(self) -> None:
        self._zoom = Zoom()
        self.redraw()

    def _fetch_once(self, task_id: str) -> None:
        if task_id != self._wanted:
            self._wanted = task_id
            self.run_worker(self._fetch_trace(task_id), group="trace", exclusive=True)

    async def _fetch_trace(self, task_id: str) -> None:
        reader = self.skulk.setup.reader
        if reader is None:
            return
        trace = await self.skulk.attempt("no trace", reader.trace(task_id))
        if trace is not None:
            self._traces[task_id] = trace
            self.redraw()

    def action_zoom(self, factor: float) -> None:
        self._zoom = self._zoom.by(factor)
        self.redraw()

    def action_move(self, by: float) -> None:
        self._zoom = self._zoom.move(by)
        self.redraw()
