"""Placed models: where, how far, how fast; and the forms that place, swap and delete them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from skulkctl.timeline.frames import Part
from skulkctl.ui.instances_page import (
    HEADERS,
    detail_lines,
    items_of,
    speed_series,
    table_rows,
)
from skulkctl.ui.lines import BLANK, line
from skulkctl.ui.page import Page
from skulkctl.ui.plots import TALL, Plots
from skulkctl.ui.widgets import LinesView, Rows

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem
    from skulkctl.ui.palette import PaletteEntry
    from skulkctl.ui.snapshot import Snapshot


class InstancesScreen(Page):
    """A table of instances and the details of the selected one."""

    PARTS = frozenset({Part.TIMELINE, Part.PLACEMENTS})
    HELP = """
    # Instances

    Each placed model with its ranks over the nodes, to scale. Bars show what is being staged or
    loaded, with rate and time left. `p` places another one: the form shows the arithmetic of every
    possible placement before anything is sent.
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t,enter", "timeline", "timeline", id="instances.timeline"),
        Binding("p", "place", "place", id="instances.place"),
        Binding("v", "place", "preview", show=False, id="instances.preview"),
        Binding("d", "drain", "drain a node", id="instances.drain"),
        Binding("s", "swap", "swap", id="instances.swap"),
        Binding("x", "delete", "delete", id="instances.delete"),
    ]

    def body(self) -> Iterator[Widget]:
        yield Rows(id="instances")
        with VerticalScroll(id="detail", can_focus=False):
            yield LinesView(id="about")
            yield Plots(2)

    def draw(self, snapshot: Snapshot) -> None:
        columns = self.columns
        table = self.query_one(Rows)
        table.fill(HEADERS, table_rows(snapshot, self.skulk.history, columns))
        self._draw_detail()
        if self.focused is None:
            table.focus()

    def _draw_detail(self) -> None:
        snapshot, item = self.skulk.snapshot, self.selected
        if snapshot is None:
            return
        view = self.query_one("#about", LinesView)
        if item is None:
            hint = "nothing is placed:  p places a model,  or  skulkctl place MODEL --wait"
            view.show([BLANK, line((f" {hint}", "muted"))])
            self.query_one(Plots).show([], has_room=False)
            return
        has_room = self.rows >= TALL
        history = self.skulk.history
        view.show(detail_lines(item, snapshot, history, self.columns, has_plots=has_room))
        series = speed_series(item, snapshot, history)
        self.query_one(Plots).show(series, has_room=has_room)

    def select(self, instance_id: str) -> None:
        """Put the cursor on this instance, if it is still placed."""
        table = self.query_one(Rows)
        if instance_id in table.keys:
            table.move_cursor(row=table.keys.index(instance_id), animate=False)

    @property
    def selected(self) -> InstanceItem | None:
        snapshot, key = self.skulk.snapshot, self.query_one(Rows).selected_key
        items = [] if snapshot is None else items_of(snapshot)
        return next((item for item in items if item["id"] == key), None)

    def on_data_table_row_highlighted(self) -> None:
        self._draw_detail()

    def on_data_table_row_selected(self) -> None:
        self.action_timeline()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("place", "swap", "delete", "drain"):
            return self.skulk.may_change
        return super().check_action(action, parameters)

    def action_timeline(self) -> None:
        if self.selected is not None:
            self.skulk.change(instance=self.selected["id"], runner=None)
        self.skulk.action_mode("timeline")

    def action_place(self) -> None:
        from skulkctl.ui.place_form import open_form

        open_form(self.skulk)

    def action_swap(self) -> None:
        from skulkctl.ui.place_form import open_form

        if self.selected is not None:
            open_form(self.skulk, instead_of=self.selected)

    def action_drain(self) -> None:
        from skulkctl.ui.changes import choose_drain

        if self.selected is not None:
            choose_drain(self.skulk, self.selected["nodes"])

    def action_delete(self) -> None:
        from skulkctl.ui.changes import delete

        if self.selected is not None:
            delete(self.skulk, self.selected)

    def palette_entries(self) -> Iterator[PaletteEntry]:
        if not self.skulk.may_change:
            return
        yield "skulkctl place", "a form with a preview of every placement", self.action_place
        if self.selected is not None:
            name = self.selected["id"][:8]
            yield f"skulkctl swap {name}", "another model instead", self.action_swap
            yield f"skulkctl delete {name}", "unloads the model", self.action_delete
