"""Fits a table into a terminal: which columns stay, how wide they are, where cells wrap. Pure.

Output for a pipe never comes here: it keeps every column and every character. It must not know
any particular table; columns declare by `spare`, `short` and `clip` what they can do without.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from skulkctl.output.terminal import pad, width

GUTTER = "  "
MORE = "…"
COMFORTABLE = 16
"""Columns of text are not made narrower than this while a less important column can go."""
LONG_WORD = 24
"""Words longer than this may lose their middle when nothing else helps."""

Shorten = Callable[[Sequence[str]], list[str]]


class Cells(NamedTuple):
    """One column of a table as text: its header, its cells, and what may be done to them."""

    header: str
    texts: tuple[str, ...]
    spare: int = 0
    short: Shorten | None = None
    is_empty: bool = False
    clip: bool = False
    right: bool = False
    status: bool = False
    has_bar: bool = False

    @property
    def natural(self) -> int:
        return max(map(width, (self.header, *self.texts)))

    def narrowest(self, comfortable: int, longest_word: int | None) -> int:
        """How narrow the column can become without breaking a word."""
        words = [word for text in self.texts for word in split_words(text)]
        longest = max((width(word.strip()) for word in words), default=0)
        if self.clip:
            longest = 0
        if longest_word is not None:
            longest = min(longest, longest_word)
        return max(width(self.header), longest, min(self.natural, comfortable))


class Layout(NamedTuple):
    """The columns that are shown, and the width of each."""

    columns: tuple[Cells, ...]
    widths: tuple[int, ...]


def fit(
    columns: Sequence[Cells], room: int, *, keep_all: bool = False, keep_empty: bool = False
) -> Layout | None:
    """The best layout in so many cells; None when only one field per line helps.

    Empty columns go first, then ids and names are shortened, then text wraps; after that the
    columns that are most easily spared go, one by one. With `keep_all` only empty ones go.
    """
    if not keep_empty:
        columns = without_empty(columns)
    if layout := _natural(columns, room):
        return layout
    columns = [_shortened(column) for column in columns]
    if layout := _natural(columns, room):
        return layout
    for kept in [columns] if keep_all else _fewer(columns):
        if layout := _squeezed(kept, room, COMFORTABLE, None):
            return layout
        columns = kept
    layout = _squeezed(columns, room, 0, None)
    return layout if layout or keep_all else _squeezed(columns, room, 0, LONG_WORD)


def without_empty(columns: Sequence[Cells]) -> list[Cells]:
    return [column for column in columns if not column.is_empty] or list(columns)


def _natural(columns: Sequence[Cells], room: int) -> Layout | None:
    widths = tuple(column.natural for column in columns)
    return Layout(tuple(columns), widths) if _total(widths) <= room else None


def _shortened(column: Cells) -> Cells:
    if column.short is None:
        return column
    return column._replace(texts=tuple(column.short(column.texts)))


def _fewer(columns: Sequence[Cells]) -> Iterator[list[Cells]]:
    """All columns, then without the ones most easily spared, one more each time."""
    kept = list(columns)
    yield list(kept)
    for column in sorted(columns, key=lambda column: -column.spare):
        if column.spare:
            kept.remove(column)
            yield list(kept)


def _squeezed(
    columns: Sequence[Cells], room: int, comfortable: int, longest_word: int | None
) -> Layout | None:
    least = [column.narrowest(comfortable, longest_word) for column in columns]
    if _total(least) > room:
        return None
    widths = [max(column.natural, limit) for column, limit in zip(columns, least, strict=True)]
    while (excess := _total(widths) - room) > 0:
        # The widest column that can still wrap gives way, down to the next widest.
        slack = [i for i in range(len(widths)) if widths[i] > least[i]]
        widest = max(slack, key=lambda i: widths[i])
        others = [widths[i] for i in slack if i != widest and widths[i] < widths[widest]]
        floor = max(least[widest], widths[widest] - excess, *others, 0)
        widths[widest] = min(floor, widths[widest] - 1)
    return Layout(tuple(columns), tuple(widths))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GUTTER) * max(0, len(widths) - 1)


def split_words(text: str) -> list[str]:
    """The pieces between which a line may end: at spaces, and after the commas of a list."""
    return re.findall(r"\s*[^\s,]+,*|\s*,+", text)


def wrap(text: str, cells: int) -> list[str]:
    """The text in lines of whole words; a word wider than a line loses its middle."""
    lines = [""]
    for word in split_words(text):
        if lines[-1] and width(lines[-1] + word) <= cells:
            lines[-1] += word
            continue
        lines.append(elide(word.strip(), cells))
    return lines[1:] or lines


def elide(word: str, cells: int) -> str:
    """The word without its middle when it is too wide: both ends tell what it is."""
    if width(word) <= cells:
        return word
    left = max(0, cells - 1) // 2
    right = max(0, cells - 1 - left)
    return f"{word[:left]}{MORE}{word[len(word) - right :]}"


def clip(text: str, cells: int) -> str:
    """As many whole words as fit in one line, with a mark when there is more."""
    lines = wrap(text, cells)
    if len(lines) == 1:
        return lines[0]
    first = wrap(text, max(1, cells - 2))[0]
    return f"{first} {MORE}"


def cell_lines(column: Cells, row: int, cells: int) -> list[str]:
    text = column.texts[row]
    if width(text) <= cells:
        return [text]
    return [clip(text, cells)] if column.clip else wrap(text, cells)


def records(columns: Sequence[Cells], room: int, empty: str | None = None) -> str:
    """One field per line and one block per row, for rows that are wider than the terminal.

    Fields with the text `empty` are left out.
    """
    label = max((width(column.header) for column in columns), default=0)
    blocks = []
    for row in range(len(columns[0].texts) if columns else 0):
        fields = [(column.header.lower(), column.texts[row]) for column in columns]
        kept = [(name, text) for name, text in fields if text != empty]
        blocks.append(pairs(kept, room, label=label))
    return "\n".join(blocks)


def pairs(
    fields: Sequence[tuple[str, str]], room: int | None, indent: str = "", label: int = 0
) -> str:
    """`name  value` lines, values below each other; a long value wraps in its own column."""
    label = max([label, *(width(name) for name, _ in fields)])
    shown = []
    for name, value in fields:
        head = f"{indent}{pad(name, label)}{GUTTER}"
        shown += hanging(head, value, room)
    return "".join(f"{line.rstrip()}\n" for line in shown)


def hanging(head: str, text: str, room: int | None) -> list[str]:
    """The text after a head; further lines begin below the first word."""
    if room is None or width(head + text) <= room:
        return [head + text]
    lines = wrap(text, max(1, room - width(head)))
    return [
        (head if number == 0 else " " * width(head)) + line for number, line in enumerate(lines)
    ]


def unique_prefixes(least: int) -> Shorten:
    """Ids cut to a length that still tells them apart, and at least so long."""

    def short(ids: Sequence[str]) -> list[str]:
        known = set(ids)
        longest = max(map(len, known), default=0)
        size = next(
            (
                size
                for size in range(least, longest)
                if len({known_id[:size] for known_id in known}) == len(known)
            ),
            longest,
        )
        return [full_id[:size] for full_id in ids]

    return short


def without_directory(commands: Sequence[str]) -> list[str]:
    """`python -m skulkd` for `/opt/skulk/bin/python -m skulkd`."""
    parts = [command.partition(" ") for command in commands]
    return [f"{program.rpartition('/')[2]}{space}{rest}" for program, space, rest in parts]


def time_of_day(times: Sequence[str]) -> list[str]:
    """Hours to milliseconds of times that are all of one day."""
    matches = [
        re.fullmatch(r"(\d{4}-\d\d-\d\d)T([\d:]{8}(?:\.\d{1,3})?).*", time) for time in times
    ]
    days = {match[1] for match in matches if match}
    if None in matches or len(days) != 1:
        return list(times)
    return [match[2] for match in matches if match]


def without_owner(ids: Sequence[str]) -> list[str]:
    """`Qwen3-8B-4bit` for `mlx-community/Qwen3-8B-4bit`, where only one model has that name."""
    owners: dict[str, set[str]] = {}
    for one in ids:
        owners.setdefault(one.rpartition("/")[2], set()).add(one)
    return [name if len(owners[name := one.rpartition("/")[2]]) == 1 else one for one in ids]
