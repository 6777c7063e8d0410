"""What every page has: the bar at the top, a banner for trouble, a filter line, the footer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from skulkctl.output.terminal import width
from skulkctl.timeline.frames import Part
from skulkctl.ui.lines import Line, Piece, line, shorten
from skulkctl.ui.palette import PaletteEntry
from skulkctl.ui.widgets import KeysBar, TopBar

if TYPE_CHECKING:
    from skulkctl.ui.app import SkulkApp
    from skulkctl.ui.snapshot import Snapshot

LABELS = {
    "cluster": "Cluster",
    "instances": "Instances",
    "timeline": "Timeline",
    "storage": "Storage",
    "traces": "Traces",
    "events": "Events",
}
_FULL, _SHORT = 96, 60


class Body(Vertical):
    """What is between the bars; drawn anew when the terminal or an open help panel resizes it."""

    def on_resize(self) -> None:
        page = cast("Page", self.screen)
        page.call_after_refresh(page.redraw)


class Page(Screen[None]):
    """One mode. Subclasses give the `body` and `draw` what a snapshot says."""

    AUTO_FOCUS = ""
    FILTER: ClassVar[str] = ""
    """What the filter line asks for; empty: this page has none."""
    EVERY_S: ClassVar[float] = 0.0
    """How often `fetch` is called while this page is shown; 0: never."""
    PARTS: ClassVar[frozenset[Part]] = frozenset()
    """What `draw` needs of a frame besides the state."""
    HELP = "One page of skulkctl."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", id="page.filter"),
        Binding("escape", "back", "back", show=False, id="page.back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.filter = ""
        self._fetches: Timer | None = None
        self._composed = False

    @property
    def skulk(self) -> SkulkApp:
        return cast("SkulkApp", self.app)

    @property
    def columns(self) -> int:
        """The width of the body, which an open help panel narrows."""
        return self.query_one("#body").size.width or self.size.width

    @property
    def rows(self) -> int:
        return self.size.height

    def compose(self) -> ComposeResult:
        yield TopBar()
        yield Static(id="trouble", markup=False)
        with Body(id="body"):
            yield from self.body()
        box = Input(placeholder=self.FILTER, id="filter")
        box.can_focus = False  # until it is opened: keys must not be typed into what is not seen
        yield box
        yield KeysBar()

    def body(self) -> Iterator[Widget]:
        """The widgets between the bars."""
        yield from ()

    def draw(self, snapshot: Snapshot) -> None:
        """Show this."""

    def palette_entries(self) -> Iterator[PaletteEntry]:
        """What the palette offers on this page, spelled like the command line."""
        yield from ()

    def on_mount(self) -> None:
        self._composed = True
        self.set_class(self.skulk.view.ascii, "ascii")
        self.redraw()

    def on_screen_resume(self) -> None:
        self.redraw()
        if self.EVERY_S and self._fetches is None:
            self._fetches = self.set_interval(self.EVERY_S, self.refetch)
        if self.EVERY_S:
            self.refetch()

    def on_screen_suspend(self) -> None:
        if self._fetches is not None:
            self._fetches.stop()
            self._fetches = None

    def refetch(self) -> None:
        """Ask for what only this page shows; not while an answer is still awaited."""
        if not any(worker.group == "fetch" for worker in self.app.workers if worker.node is self):
            self.run_worker(self._fetch(), group="fetch")

    async def _fetch(self) -> None:
        await self.fetch()
        self.redraw()

    async def fetch(self) -> None:
        """What this page shows besides the snapshot."""

    def redraw(self, *, only_bars: bool = False) -> None:
        """Everything on this page that depends on data or on the view; or only on the time."""
        # A page is resumed before its widgets are there, and outlives them when it is closed.
        if not self._composed or not self.query("#trouble"):
            return
        snapshot = self.skulk.snapshot
        self._draw_bars(snapshot)
        if snapshot is not None and not only_bars:
            self.draw(snapshot)

    def _draw_bars(self, snapshot: Snapshot | None) -> None:
        app = self.skulk
        trouble = self.query_one("#trouble", Static)
        text = app.waiting_for if snapshot is None else snapshot.trouble
        trouble.display = bool(text)
        trouble.set_class(not app.is_in_trouble, "waiting")
        if text:
            symbol = "✖" if app.is_in_trouble else "◌"
            trouble.update(f" {'' if app.view.ascii else symbol + ' '}{text}")
        modes = LABELS if app.setup.feed.live else {"timeline": "Timeline"}
        bar, places = top_line(
            app.setup.context, modes, app.current_mode, self.freshness(snapshot), self.columns
        )
        self.query_one(TopBar).show(bar, places)

    def freshness(self, snapshot: Snapshot | None) -> list[Piece]:
        """Who leads, and how old the data is."""
        view, app = self.skulk.view, self.skulk
        if snapshot is None:
            return [("connecting", "attention")]
        pieces: list[Piece] = []
        master = snapshot.names.get(str(snapshot.timeline.master_node_id or ""))
        if master:
            pieces.append((f"♛ {shorten(master, 16)}  ", None))
        if view.read_only:
            pieces.append(("read-only  ", "attention"))
        if snapshot.replay:
            return [*pieces, (snapshot.replay, "attention")]
        if snapshot.trouble:
            return [*pieces, ("NO ANSWER", "problem")]
        if view.paused_at:
            return [*pieces, (f"PAUSED {view.paused_at}", "attention")]
        return [*pieces, (f"{app.setup.now():%H:%M:%S}Z", "muted")]

    # The filter line

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        del parameters
        return bool(self.FILTER) if action == "filter" else True

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.add_class("open")
        box.can_focus = True
        box.value = self.filter
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter" and event.input.has_class("open"):
            self.filter = event.value.strip()
            self.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self._close_filter()

    def _close_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.remove_class("open")
        box.can_focus = False
        self.focus_body()

    def focus_body(self) -> None:
        """Where keys go when nothing else wants them."""
        for widget in self.query("#body *"):
            if widget.focusable:
                widget.focus()
                return

    def action_back(self) -> None:
        """The first escape clears the filter."""
        box = self.query_one("#filter", Input)
        if box.has_class("open") or self.filter:
            box.value = self.filter = ""
            self._close_filter()
            self.redraw()
        else:
            self.leave()

    def leave(self) -> None:
        """What escape does without a filter."""


def top_line(
    context: str, modes: dict[str, str], current: str, right: list[Piece], columns: int
) -> tuple[Line, dict[str, tuple[int, int]]]:
    """The bar at the top, and the columns of each mode in it. Narrow screens show numbers only."""
    pieces: list[Piece] = [(" Skulk", "accent")]
    if context and columns >= _SHORT:
        pieces.append((f" ▸ {shorten(context, 14)}", "strong"))
    pieces.append(("  ", None))
    places: dict[str, tuple[int, int]] = {}
    at = sum(width(text) for text, _ in pieces)
    numbers = {mode: number for number, mode in enumerate(LABELS, start=1)}
    for mode, label in modes.items():
        shown = label if columns >= _FULL or mode == current else label[:4]
        text = (
            f" {numbers[mode]} {shown} "
            if columns >= _SHORT or mode == current
            else f" {numbers[mode]}"
        )
        pieces.append((text, "@start" if mode == current else "muted"))
        places[mode] = (at, at + width(text))
        at += width(text)
    tail = sum(width(text) for text, _ in right) + 1
    while right and at + tail > columns:
        tail -= width(right[0][0])
        right = right[1:]
    gap = max(1, columns - at - tail)
    return line(*pieces, " " * gap, *right), places
