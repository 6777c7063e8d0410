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
from skulkctl.layout import GUTTER, Cells, Shorten, cell_lines, fit, records
from skulkctl.screen import pad, paint, printable, role_of
from skulkctl.units import age_text, size_text
from skulkctl.views.read import Document, dig

EMPTY = "-"


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
    spare: int = 0
    """Left out on a narrow terminal, the highest number first; 0 always stays."""
    short: Shorten | None = None
    """Shorter cells for a narrow terminal."""
    is_id: bool = False
    """Shortened on every terminal, narrow or not, unless the column was asked for."""
    clip: bool = False
    """On a terminal a long cell ends with a mark instead of wrapping."""

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
    room: int | None = None,
    keep_all: bool = False,
    keep_empty: bool = False,
) -> str:
    """Rows with two-space gutters and no boxes. `least`: widths of first columns.

    Without `room`, which is the width of a terminal, nothing is left out, wrapped or shortened.
    """
    found = list(items)
    table = [
        _cells(column, found, headers, room is not None and not keep_all) for column in columns
    ]
    widths = [column.natural for column in table]
    if room is not None:
        layout = fit(table, room, keep_all=keep_all, keep_empty=keep_empty)
        if layout is None:
            return records(table, room, None if keep_empty else EMPTY)
        table, widths = list(layout.columns), list(layout.widths)
    widths = [max(pair) for pair in zip_longest(widths, least[: len(widths)], fillvalue=0)]
    lines = [_line(table, widths, [cells.header for cells in table])] if headers else []
    for row in range(len(found)):
        parts = [cell_lines(cells, row, size) for cells, size in zip(table, widths, strict=True)]
        roles = [role_of(cells.texts[row]) if colour and cells.status else None for cells in table]
        lines += [_line(table, widths, texts, roles) for texts in zip_longest(*parts, fillvalue="")]
    return "".join(lines)


def _cells(column: Column, items: Sequence[Document], header: bool, abridge: bool) -> Cells:
    texts = [column.cell(item) for item in items]
    if abridge and column.is_id and column.short is not None:
        texts = column.short(texts)
    return Cells(
        column.header if header else "",
        tuple(texts),
        spare=column.spare,
        short=column.short,
        is_empty=bool(texts) and set(texts) == {EMPTY},
        clip=column.clip and abridge,
        right=column.right,
        status=column.status,
    )


def _line(
    table: Sequence[Cells],
    widths: Sequence[int],
    texts: Sequence[str],
    roles: Sequence[str | None] = (),
) -> str:
    parts = []
    for cells, text, size, role in zip_longest(table, texts, widths, roles):
        padded = pad(text, size, cells.right)
        parts.append(padded.replace(text, paint(text, role), 1) if text and role else padded)
    return GUTTER.join(parts).rstrip() + "\n"
