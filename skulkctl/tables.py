"""Columns, resources and plain-text tables. Pure.

One `Resource` per kind of row drives the table, `-o wide`, `--columns`, `--sort`,
completion and the reference page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import zip_longest

from skulkctl.errors import UsageMistake
from skulkctl.screen import pad, paint, printable, role_of, width
from skulkctl.units import age_text, size_text
from skulkctl.views.read import Document, dig

EMPTY = "-"
GUTTER = "  "


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


@dataclass(frozen=True)
class Column:
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

    @property
    def header(self) -> str:
        return self.name.replace("-", " ").upper()

    def value(self, item: Document) -> object:
        return dig(item, *self.path.split("."))

    def cell(self, item: Document) -> str:
        return self.text(self.value(item))


@dataclass(frozen=True)
class Resource:
    """A kind of row: its JSON kind, its columns, and which field is its name."""

    kind: str
    columns: tuple[Column, ...]
    name_path: str
    empty_hint: str = ""

    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def name_of(self, item: Document) -> str:
        return plain(dig(item, *self.name_path.split(".")))

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
) -> str:
    """Rows with two-space gutters; no boxes, nothing cut off. `least`: widths of first columns."""
    rows = [[column.cell(item) for column in columns] for item in items]
    lines = [[column.header for column in columns], *rows] if headers else rows
    widths = [max((width(line[i]) for line in lines), default=0) for i in range(len(columns))]
    widths = [max(pair) for pair in zip_longest(widths, least[: len(widths)], fillvalue=0)]
    shown = []
    for number, line in enumerate(lines):
        cells = [
            pad(cell, cells, column.right)
            for cell, cells, column in zip(line, widths, columns, strict=True)
        ]
        if colour and not (headers and number == 0):
            cells = [
                padded.replace(cell, paint(cell, role_of(cell)), 1) if column.status else padded
                for padded, cell, column in zip(cells, line, columns, strict=True)
            ]
        shown.append(GUTTER.join(cells).rstrip() + "\n")
    return "".join(shown)
