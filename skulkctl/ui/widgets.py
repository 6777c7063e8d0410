"""What every page is made of: drawn lines, the bar at the top, and tables that keep their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import DataTable, Footer

from skulkctl.ui.lines import BLANK, Line, fit_lines, to_ascii

if TYPE_CHECKING:
    from skulkctl.ui.app import SkulkApp


def set_title(widget: Widget, title: str, subtitle: str = "") -> None:
    """What is on the frame of a widget; it is drawn again only if it changed."""
    if cast("SkulkApp", widget.app).view.ascii:
        title, subtitle = to_ascii(title), to_ascii(subtitle)
    # Textual reads these as markup.
    title, subtitle = title.replace("[", r"\["), subtitle.replace("[", r"\[")
    if widget.border_title != title:
        widget.border_title = title
    if widget.border_subtitle != subtitle and (subtitle or widget.border_subtitle):
        widget.border_subtitle = subtitle


class LinesView(Widget):
    """Shows lines as they are, and draws only those that changed; it never wraps."""

    DEFAULT_CSS = "LinesView { width: 1fr; height: auto; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._given: Sequence[Line] = ()
        self._lines: list[Line] = []
        self._measured = 0
        """How many lines the last layout was made for; one that is asked for may be left out."""

    @property
    def lines(self) -> Sequence[Line]:
        return self._lines

    @property
    def skulk(self) -> SkulkApp:
        return cast("SkulkApp", self.app)

    @property
    def room(self) -> int:
        """Columns for a line."""
        return self.content_size.width

    def show(self, lines: Sequence[Line]) -> None:
        """An unchanged line costs nothing; another number of lines may move other widgets."""
        before, self._given = self._lines, lines
        self._lines = fit_lines(lines, max(1, self.room), self.skulk.view.ascii)
        if len(before) != len(self._lines) or len(self._lines) != self._measured:
            self.refresh(layout=True)
            return
        gutter = self.gutter
        for number, (old, new) in enumerate(zip(before, self._lines, strict=True)):
            if old != new:
                self.refresh(Region(gutter.left, gutter.top + number, self.room, 1))

    def on_resize(self) -> None:
        """Lines that were shown before the widget had its width are cut anew."""
        self.show(self._given)

    def get_content_height(self, container: Any, viewport: Any, width: int) -> int:
        del container, viewport, width
        self._measured = len(self._lines)
        return self._measured

    def render_line(self, y: int) -> Strip:
        shown = self._lines[y] if y < len(self._lines) else BLANK
        palette, base = self.skulk.palette, self.rich_style
        segments = [Segment(text, base + palette.style(role)) for text, role in shown.pieces]
        return Strip(segments).adjust_cell_length(self.room, base)


def cell(line: Line, palette_style: Any, ascii_only: bool) -> Text:
    """A line as a cell of a table."""
    text = Text(no_wrap=True, end="")
    for piece, role in fit_lines([line], 10_000, ascii_only)[0].pieces:
        text.append(piece, palette_style(role))
    return text


Row = tuple[str, Sequence[Line | str]]
"""What identifies a row, and its cells."""


_Columns = tuple[tuple[str, ...], tuple[int, ...], str]
"""Headers, widths, and the theme that coloured them."""


class Rows(DataTable[Text]):
    """A table that is given all its rows at once; the cursor stays on the row it was on."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("enter", "select_cursor", "open", id="rows.open"),
        Binding("j", "cursor_down", "down", show=False, id="rows.down"),
        Binding("k", "cursor_up", "up", show=False, id="rows.up"),
        Binding("g", "scroll_top", "first", show=False, id="rows.first"),
        Binding("G", "scroll_bottom", "last", show=False, id="rows.last"),
    ]

    def __init__(self, *, id: str | None = None, opens: bool = True) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, show_cursor=True)
        self._opens = opens
        """Whether enter does something here."""
        self._shown: tuple[Any, ...] = ()
        self.keys: list[str] = []

    @property
    def skulk(self) -> SkulkApp:
        return cast("SkulkApp", self.app)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "select_cursor":
            return self._opens
        return super().check_action(action, parameters)

    def on_resize(self) -> None:
        """The cursor stays in sight when other widgets take room."""
        if self.row_count:
            self.move_cursor(row=self.cursor_row, animate=False)

    @property
    def selected_key(self) -> str | None:
        return self.keys[self.cursor_row] if 0 <= self.cursor_row < len(self.keys) else None

    def fill(
        self,
        headers: Sequence[str],
        rows: Sequence[Row],
        keep: str | None = None,
        widths: Sequence[int] = (),
    ) -> None:
        """Show these rows; `keep` is the row to select, else the one that was selected.

        Columns are as wide as their cells, or as `widths` says.
        """
        columns = tuple(headers), tuple(widths), self.app.theme
        shown = columns, tuple((key, tuple(cells)) for key, cells in rows)
        wanted = keep or self.selected_key
        if shown != self._shown:
            before, self._shown = self._shown, shown
            self._refill(columns, rows, before[:1] == (columns,), keeps_place=keep is None)
        if wanted in self.keys and self.keys.index(wanted) != self.cursor_row:
            self.move_cursor(row=self.keys.index(wanted), animate=False)

    def _refill(
        self, columns: _Columns, rows: Sequence[Row], same_columns: bool, keeps_place: bool
    ) -> None:
        """A table with as many rows as before is updated: adding rows makes a new layout."""
        keys = [key for key, _ in rows]
        is_part = bool(columns[1]) and len(keys) == len(self.keys)
        if same_columns and (keys == self.keys or is_part):
            self.keys = keys
            self._update(rows, update_width=not columns[1])
            return
        top = self.scroll_y
        self.clear(columns=not same_columns)
        if not same_columns:
            self._add_columns(*columns[:2])
        self.keys = keys
        self.add_rows([self._cell(content) for content in cells] for _, cells in rows)
        if keeps_place:
            self.scroll_to(y=top, animate=False)

    def _add_columns(self, headers: Sequence[str], widths: Sequence[int]) -> None:
        style = self.skulk.palette.style("muted")
        for number, (header, size) in enumerate(zip_longest(headers, widths)):
            self.add_column(Text(header, style=style), key=str(number), width=size)

    def _update(self, rows: Sequence[Row], update_width: bool) -> None:
        """Only what is different is drawn again."""
        for number, (_, cells) in enumerate(rows):
            for column, content in enumerate(cells):
                new = self._cell(content)
                if self.get_cell_at((number, column)) != new:  # type: ignore[arg-type]
                    self.update_cell_at((number, column), new, update_width=update_width)  # type: ignore[arg-type]

    def _cell(self, content: Line | str) -> Text:
        line = Line(((content, None),)) if isinstance(content, str) else content
        return cell(line, self.skulk.palette.style, self.skulk.view.ascii)


def common_start(old: str, new: str) -> int:
    """How many characters both begin with; only what follows is painted again."""
    pairs = zip(old, new, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


class TopBar(Widget):
    """One line: the cluster, the modes with their keys, the master, how fresh the data is."""

    DEFAULT_CSS = """
    TopBar { dock: top; height: 1; width: 1fr; background: $panel; color: $foreground; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._line = BLANK
        self._modes: dict[str, tuple[int, int]] = {}

    def show(self, line: Line, modes: Mapping[str, tuple[int, int]]) -> None:
        """`modes` are the columns at which each mode can be clicked."""
        self._modes = dict(modes)
        if line != self._line:
            same = common_start(self._line.plain, line.plain)
            self._line = line
            self.refresh(Region(same, 0, max(0, self.size.width - same), 1))

    def render_line(self, y: int) -> Strip:
        del y
        app, base = cast("SkulkApp", self.app), self.rich_style
        [line] = fit_lines([self._line], self.size.width, app.view.ascii)
        style = app.palette.style
        segments = [Segment(text, base + style(role)) for text, role in line.pieces]
        return Strip(segments).adjust_cell_length(self.size.width, base or Style())

    def on_click(self, event: events.Click) -> None:
        for mode, (start, end) in self._modes.items():
            if start <= event.x < end:
                cast("SkulkApp", self.app).action_mode(mode)


class KeysBar(Footer):
    """The footer; its widgets are made anew only when it has other keys to show.

    Textual announces keys whenever the focus moves or a page is shown again.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._announced: list[tuple[Any, ...]] = []

    def bindings_changed(self, screen: Screen[Any]) -> None:
        active = [
            (one.binding.key, one.binding.description, one.binding.action, one.enabled)
            for one in screen.active_bindings.values()
            if one.binding.show
        ]
        if active == self._announced or screen is not self.screen:
            return
        self._announced = active
        super().bindings_changed(screen)
