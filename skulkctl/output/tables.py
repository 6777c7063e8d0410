"""Columns, resources, and tables as text. Pure.

One `Resource` per kind of row drives the table, `-o wide`, `--columns`, `--sort`,
completion and the reference page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from typing import NamedTuple

from skulkctl.errors import UsageMistake
from skulkctl.output.layout import GUTTER, Cells, Shorten, fit, records
from skulkctl.output.terminal import bar, pad, printable, width, with_symbol
from skulkctl.output.units import age_text, size_text

EMPTY = "-"
BAR = 8
"""Cells of a bar in a table."""

Document = Mapping[str, object]
"""An item as `-o json` prints it."""


def value_at(item: object, path: str) -> object:
    """The value under nested keys, as `memory.totalBytes`; None as soon as one is missing."""
    for key in path.split("."):
        if not isinstance(item, Mapping):
            return None
        item = item.get(key)
    return item


def plain(value: object) -> str:
    """Any JSON value as one cell."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(plain(entry) for entry in value) or EMPTY
    if value in (None, "", {}):
        return EMPTY
    return printable(str(value))


def size(value: object) -> str:
    return size_text(value, gap="") if isinstance(value, int) else EMPTY


def age(value: object) -> str:
    return age_text(value) if isinstance(value, int | float) else EMPTY


def percent(value: object) -> str:
    return f"{value:.1f}%" if isinstance(value, int | float) else EMPTY


def share(part: str, whole: str, *, free: bool = False) -> Callable[[Document], float | None]:
    """The ratio of two values by their paths; with `free`, the part is what is not in use."""

    def ratio(item: Document) -> float | None:
        some, everything = value_at(item, part), value_at(item, whole)
        if not isinstance(some, int) or not isinstance(everything, int) or everything <= 0:
            return None
        return (everything - some if free else some) / everything

    return ratio


class Column(NamedTuple):
    """One column: where its value is in the JSON item and how a cell shows it."""

    name: str
    path: str
    about: str
    text: Callable[[object], str] = plain
    wide: bool = False
    only_narrow: bool = False
    right: bool = False
    status: bool = False
    """Its words may be coloured."""
    spare: int = 0
    """Left out on a narrow terminal, the highest number first; 0 always stays."""
    short: Shorten | None = None
    """Shorter cells for a narrow terminal."""
    is_id: bool = False
    """Shortened on every terminal, narrow or not, unless the column was asked for."""
    clip: bool = False
    """On a terminal a long cell ends with a mark instead of wrapping."""
    ratio: Callable[[Document], float | None] | None = None
    """Drawn as a bar before the text, where the terminal is wide enough."""

    @property
    def header(self) -> str:
        return self.name.replace("-", " ").upper()

    def value(self, item: Document) -> object:
        return value_at(item, self.path)

    def cell(self, item: Document) -> str:
        return self.text(self.value(item))


class Resource(NamedTuple):
    """A kind of row: its JSON kind, its columns, and which field is its name."""

    kind: str
    columns: tuple[Column, ...]
    name_path: str
    empty_hint: str = ""

    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def name_of(self, item: Document) -> str:
        return plain(value_at(item, self.name_path))

    def find(self, name: str) -> Column:
        """The column with that name; raises UsageMistake naming the nearest."""
        for column in self.columns:
            if column.name == name.strip().lower():
                return column
        near = get_close_matches(name.lower(), self.column_names(), n=1)
        hints = [f"did you mean {near[0]}?"] if near else []
        raise UsageMistake(
            f"no column named {name.strip() or repr(name)}",
            f"columns: {', '.join(self.column_names())}",
            hints=hints,
        )

    def choose(self, names: str | None, wide: bool) -> list[Column]:
        """The columns to show: those asked for in their order, or the default set."""
        if names is not None:
            return [self.find(name) for name in names.split(",")]
        return [
            column for column in self.columns if not (column.only_narrow if wide else column.wide)
        ]

    def ordered(self, items: Sequence[Document], sort: str | None) -> list[Document]:
        """Items by a column, `-column` for descending; empty values always come last."""
        if sort is None:
            return list(items)
        column = self.find(sort.removeprefix("-"))
        known = [item for item in items if column.value(item) is not None]
        unknown = [item for item in items if column.value(item) is None]
        known.sort(key=lambda item: _sort_key(column.value(item)), reverse=sort.startswith("-"))
        return known + unknown


def _sort_key(value: object) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, plain(value).casefold())


def render(
    columns: Sequence[Column],
    items: Iterable[Document],
    *,
    headers: bool = True,
    colour: bool = False,
    least: Sequence[int] = (),
    room: int | None = None,
    keep_all: bool = False,
    keep_empty: bool = False,
) -> str:
    """Rows with two-space gutters and no boxes. `least`: widths of first columns.

    Without `room`, which is the width of a terminal, nothing is left out, wrapped or shortened.
    """
    found, is_terminal = list(items), room is not None
    table = [_cells(column, found, headers, is_terminal, keep_all) for column in columns]
    widths = [column.natural for column in table]
    if room is not None:
        layout = fit(table, room, keep_all=keep_all, keep_empty=keep_empty)
        if layout is None:
            return records(table, room, None if keep_empty else EMPTY)
        table, widths = list(layout.columns), list(layout.widths)
    widths = [max(pair) for pair in zip_longest(widths, least[: len(widths)], fillvalue=0)]
    if is_terminal or colour:
        from skulkctl.output.drawing import draw_table

        return draw_table(table, widths, len(found), headers=headers, colour=colour)
    lines = [_line(table, widths, [cells.header for cells in table])] if headers else []
    lines += [_line(table, widths, [c.texts[row] for c in table]) for row in range(len(found))]
    return "".join(lines)


def _cells(
    column: Column, items: Sequence[Document], header: bool, is_terminal: bool, keep_all: bool
) -> Cells:
    texts = [column.cell(item) for item in items]
    short, abridge = column.short, is_terminal and not keep_all
    if abridge and column.is_id and short is not None:
        texts = short(texts)
    is_empty = bool(texts) and set(texts) == {EMPTY}
    if is_terminal and column.status:
        texts = [with_symbol(text) for text in texts]
    ratios = [column.ratio(item) if column.ratio and is_terminal else None for item in items]
    has_bar = any(ratio is not None for ratio in ratios)
    if has_bar:
        texts, short = _with_bars(ratios, texts), _constant(texts)
    return Cells(
        column.header if header else "",
        tuple(texts),
        spare=column.spare,
        short=short,
        is_empty=is_empty,
        clip=column.clip and abridge,
        right=column.right,
        status=column.status,
        has_bar=has_bar,
    )


def _with_bars(ratios: Sequence[float | None], texts: Sequence[str]) -> list[str]:
    """The texts below each other, each after its bar; blanks where the ratio is not known."""
    longest = max(map(width, texts))
    bars = [" " * BAR if ratio is None else bar(ratio, BAR) for ratio in ratios]
    return [f"{drawn} {pad(text, longest, True)}" for drawn, text in zip(bars, texts, strict=True)]


def _constant(texts: list[str]) -> Shorten:
    return lambda _: texts


def _line(table: Sequence[Cells], widths: Sequence[int], texts: Sequence[str]) -> str:
    parts = [
        pad(text, size, cells.right) for cells, text, size in zip(table, texts, widths, strict=True)
    ]
    return GUTTER.join(parts).rstrip() + "\n"
