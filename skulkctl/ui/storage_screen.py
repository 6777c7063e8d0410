"""What is on the disks of the nodes, and purging what nothing uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from skulkctl.storage.rows import StorageItem, copies_of, storage_items
from skulkctl.ui.changes import purge
from skulkctl.ui.lines import line
from skulkctl.ui.page import Page
from skulkctl.ui.plots import TALL
from skulkctl.ui.storage_page import HEADERS, copy_rows, legend_line, volume_lines
from skulkctl.ui.widgets import LinesView, Rows, set_title

if TYPE_CHECKING:
    from skulkctl.ui.palette import PaletteEntry
    from skulkctl.ui.snapshot import Snapshot
    from skulkd.wire.storage import ClusterStorage


class StorageScreen(Page):
    """A bar for each volume, and every staged model."""

    FILTER = "filter: text !not node:NAME model:NAME state:evict"
    EVERY_S = 10.0
    HELP = """
    # Storage

    What fills the models volume of each node: copies in use, copies that eviction leaves, those it
    deletes next, logs, everything else. `p` purges the selected copy, `P` everything unused; both
    ask the nodes for a dry run first and show it.
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "purge", "purge copy", id="storage.purge"),
        Binding("P", "purge_all", "purge all unused", id="storage.purge_all"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._answer: ClusterStorage | None = None
        self._stored = 0
        """Bytes in the shared store."""

    def body(self) -> Iterator[Widget]:
        with VerticalScroll(id="volumes", can_focus=False):
            yield LinesView(id="bars")
        yield LinesView(id="legend")
        yield Rows(id="copies", opens=False)

    async def fetch(self) -> None:
        reader = self.skulk.setup.reader
        if reader is not None:
            found = await self.skulk.attempt("no storage", reader.storage())
            self._answer = found or self._answer
            nodes = found.nodes if found else ()
            if any(node.storage and node.storage.store_path for node in nodes):
                self._stored = await self.skulk.attempt("no store", reader.stored()) or 0

    @property
    def items(self) -> list[StorageItem]:
        snapshot = self.skulk.snapshot
        if self._answer is None or snapshot is None or snapshot.cluster is None:
            return []
        return storage_items(self._answer, snapshot.cluster.state)

    def draw(self, snapshot: Snapshot) -> None:
        items, columns = self.items, self.columns
        bars = (
            volume_lines(items, self._stored, columns, is_tall=self.rows >= TALL)
            if self._answer
            else [line((" asking the nodes", "muted"))]
        )
        self.query_one("#bars", LinesView).show(bars)
        self.query_one("#legend", LinesView).show([legend_line()])
        table = self.query_one(Rows)
        rows, count = copy_rows(copies_of(items), self.filter, columns)
        hint = "" if rows or self._answer is None else " · a placed model is staged on its nodes"
        set_title(table, f"staged models · {count}{hint}")
        table.fill(HEADERS, rows)
        if self.focused is None:
            table.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("purge", "purge_all"):
            return self.skulk.may_change
        return super().check_action(action, parameters)

    def action_purge(self) -> None:
        key = self.query_one(Rows).selected_key
        copies = [copy for copy in copies_of(self.items) if copy["id"] == key]
        if copies:
            node_id = copies[0]["id"].partition(" ")[0]
            purge(self.skulk, copies[0]["modelId"], node_id)

    def action_purge_all(self) -> None:
        purge(self.skulk, None, None)

    def palette_entries(self) -> Iterator[PaletteEntry]:
        if self.skulk.may_change:
            yield "skulkctl purge-staging", "a dry run first", self.action_purge_all
