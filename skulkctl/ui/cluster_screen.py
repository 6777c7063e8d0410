"""The first page: nodes as cards, links, totals, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import ItemGrid, VerticalScroll
from textual.widget import Widget

from skulkctl.timeline.frames import EVERYTHING
from skulkctl.ui.cluster_page import (
    DENSE,
    Card,
    alarm_lines,
    cards,
    link_lines,
    total_series,
    totals_line,
)
from skulkctl.ui.history import History
from skulkctl.ui.instances_page import detail_lines, items_of, state_of, strip_line
from skulkctl.ui.lines import BLANK, Line, line
from skulkctl.ui.page import Page
from skulkctl.ui.plots import TALL, Plots
from skulkctl.ui.widgets import LinesView, set_title

if TYPE_CHECKING:
    from skulkctl.ui.palette import PaletteEntry
    from skulkctl.ui.snapshot import Snapshot

NARROWEST, NARROWEST_DENSE = 36, 30


class NodeCard(LinesView, can_focus=True):
    """One node. Keys of the page act on the card that has the focus."""

    # Here and not on the page: the container between them would scroll instead.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,right,j", "app.focus_next", "next", show=False, id="cluster.next"),
        Binding("up,left,k", "app.focus_previous", "previous", show=False, id="cluster.previous"),
    ]

    def __init__(self, card: Card) -> None:
        super().__init__()
        self.node_id = card.node_id

    def on_resize(self) -> None:
        """Bars are as long as the card is wide; one of them speaks for all."""
        super().on_resize()
        page = self.screen
        if isinstance(page, ClusterScreen) and self is page.query(NodeCard).first():
            page.call_after_refresh(page.redraw)

    def draw(self, card: Card) -> None:
        set_title(self, card.title, card.subtitle)
        for role in ("ok", "waiting", "attention", "problem"):
            self.set_class(role == card.role, role)
        self.show(card.lines)


class ClusterScreen(Page):
    """Everything at one glance."""

    PARTS = EVERYTHING
    HELP = """
    # Cluster

    A card for each node: memory (models, other, free), CPU and accelerator over the last minutes,
    disk, uptime and round trip. What needs attention is on top.
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,l", "logs", "log of node", id="cluster.logs"),
        Binding("d", "drain", "drain/undrain", id="cluster.drain"),
        Binding("t", "app.mode('timeline')", "timeline", id="cluster.timeline"),
    ]

    def body(self) -> Iterator[Widget]:
        yield LinesView(id="alarms")
        yield LinesView(id="totals")
        with VerticalScroll(can_focus=False):
            yield ItemGrid(id="cards", min_column_width=NARROWEST)
            yield LinesView(id="links")
            yield LinesView(id="placed")
            yield Plots(4)

    def draw(self, snapshot: Snapshot) -> None:
        columns = self.columns
        self.query_one("#alarms", LinesView).show(alarm_lines(snapshot))
        self.query_one("#totals", LinesView).show(
            [totals_line(snapshot, self.skulk.history, columns)]
        )
        self._draw_cards(snapshot)
        if snapshot.cluster is not None:
            self.query_one("#links", LinesView).show(link_lines(snapshot.cluster, columns - 2))
        self.query_one("#placed", LinesView).show(
            placed_lines(snapshot, self.skulk.history, columns, self.rows >= TALL)
        )
        series = total_series(self.skulk.history, snapshot.cluster) if snapshot.cluster else []
        self.query_one(Plots).show(series, has_room=self.rows >= TALL)

    def _draw_cards(self, snapshot: Snapshot) -> None:
        grid = self.query_one("#cards", ItemGrid)
        shown = {card.node_id: card for card in grid.query(NodeCard)}
        count = len(snapshot.cluster.nodes) if snapshot.cluster else 0
        narrowest = NARROWEST_DENSE if count >= DENSE else NARROWEST
        grid.min_column_width = max(10, min(narrowest, self.columns - 4))
        across = next((card.room for card in shown.values() if card.room), narrowest)
        wanted = cards(snapshot, self.skulk.history, across)
        if [card.node_id for card in wanted] != list(shown):
            with self.app.batch_update():
                grid.remove_children()
                grid.mount_all(NodeCard(card) for card in wanted)
            self.call_after_refresh(self._fill)
            return
        for card in wanted:
            shown[card.node_id].draw(card)
        if wanted and self.focused is None and self.is_current:
            self.focus_body()

    def _fill(self) -> None:
        """New cards know their width only after a layout."""
        if self.skulk.snapshot is not None:
            self._draw_cards(self.skulk.snapshot)

    @property
    def selected(self) -> str | None:
        return self.focused.node_id if isinstance(self.focused, NodeCard) else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "drain":
            return self.skulk.may_change
        return super().check_action(action, parameters)

    def action_logs(self) -> None:
        if self.selected is not None:
            self.skulk.show_events(node_id=self.selected)

    def action_drain(self) -> None:
        from skulkctl.ui.changes import drain

        snapshot = self.skulk.snapshot
        nodes = snapshot.cluster.nodes if snapshot and snapshot.cluster else ()
        node = next((node for node in nodes if node["id"] == self.selected), None)
        if node is not None:
            drain(self.skulk, node)

    def palette_entries(self) -> Iterator[PaletteEntry]:
        snapshot = self.skulk.snapshot
        for node in snapshot.cluster.nodes if snapshot and snapshot.cluster else ():
            show: Any = lambda node_id=node["id"]: self.skulk.show_events(node_id=node_id)  # noqa: E731
            yield f"skulkctl logs {node['name']}", "log lines of the node", show


def placed_lines(snapshot: Snapshot, history: History, columns: int, is_tall: bool) -> list[Line]:
    """The instances, each with its layers over the nodes, and more where there is room."""
    lines: list[Line] = []
    for item in items_of(snapshot):
        if is_tall:
            lines += [BLANK, *detail_lines(item, snapshot, history, columns)]
            continue
        symbol, role, word = state_of(item, snapshot)
        detail = f"  {item['detail']}" if item["detail"] else ""
        tasks = item["tasks"]
        work = f"  {tasks} request{'' if tasks == 1 else 's'}" if tasks else ""
        head = line((f" {symbol} {word}  ", role), (item["modelId"], "strong"), f"{work}{detail}")
        lines += [BLANK, head, strip_line(item, columns)]
    empty = line((" nothing is placed:  2 Instances, then p, or  skulkctl place MODEL", "muted"))
    return lines or [BLANK, empty]
