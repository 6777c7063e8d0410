"""Storage as lines and rows: what fills each volume, and the staged models. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from skulkctl.output.terminal import pad, width
from skulkctl.output.units import age_text, size_text
from skulkctl.storage.rows import CopyItem, StorageItem
from skulkctl.ui.filters import BadFilter, parse_filter
from skulkctl.ui.lines import BLANK, Line, line, shorten, stacked_bar

HEADERS = ("node", "model", "size", "last used", "state", "in use by")
PARTS = (
    ("in use", "█", "compute"),
    ("kept", "▓", "start"),
    ("evict next", "▚", "wait"),
    ("store", "▞", "accent"),
    ("logs and events", "≡", "cancel"),
    ("other", "▒", "other"),
    ("free", "░", "muted"),
)
_STATES = {"in use": "ok", "evict next": "attention", "half": "attention"}


def legend_line() -> Line:
    pieces: list[tuple[str, str | None]] = [(" ", None)]
    for name, fill, role in PARTS:
        pieces += [(f"{fill} ", role), (f"{name}   ", "muted")]
    return line(*pieces)


def volume_lines(
    items: Sequence[StorageItem], stored: int, columns: int, *, is_tall: bool
) -> list[Line]:
    """A stacked bar for each node; where there is room, what its parts are in bytes."""
    longest = max([width(item["name"]) for item in items] or [4])
    name = min(longest, max(8, columns // 5))
    lines = []
    for item in items:
        sizes = volume_sizes(item, stored)
        lines.append(_volume(item, sizes, name, columns))
        if is_tall and item["diskTotalBytes"]:
            lines += [_numbers(sizes, name), BLANK]
    return lines


def _numbers(sizes: dict[str, float], name: int) -> Line:
    pieces: list[tuple[str, str | None]] = [(" " * (name + 2), None)]
    for part, fill, role in PARTS:
        if sizes[part] and part != "free":  # which is beside the bar
            pieces += [(f"{fill} ", role), (f"{part} {size_text(int(sizes[part]))}   ", "muted")]
    return line(*pieces)


def _volume(item: StorageItem, sizes: dict[str, float], name: int, columns: int) -> Line:
    label = f" {pad(shorten(item['name'], name), name)} "
    whole, free = item["diskTotalBytes"], item["diskFreeBytes"]
    if not whole or free is None:
        return line((label, "strong"), (f"✖ {item['status']}  {item['error'] or ''}", "problem"))
    text = f" {size_text(free, '')} free"
    if columns >= 100:
        staged = size_text(item["stagedBytes"] or 0)
        text = f"  {staged} staged, {size_text(free)} of {size_text(whole)} free"
    parts = [(sizes[key], fill, role) for key, fill, role in PARTS]
    cells = max(8, columns - len(label) - len(text) - 1)
    return line((label, "strong"), *stacked_bar(parts, cells), text)


def volume_sizes(item: StorageItem, stored: int) -> dict[str, float]:
    """Bytes of the volume by what they are for; they add up to its size.

    `stored` is the size of the shared store, which is on the volume of its host.
    """
    whole, free = float(item["diskTotalBytes"] or 0), float(item["diskFreeBytes"] or 0)
    in_use, evict = float(item["inUseBytes"] or 0), float(item["nextEvictionBytes"] or 0)
    kept = max(0.0, (item["stagedBytes"] or 0) - in_use - evict)
    logs = float((item["eventLogBytes"] or 0) + (item["logBytes"] or 0))
    store = float(stored) if item["storePath"] else 0.0
    other = max(0.0, whole - free - in_use - kept - evict - logs - store)
    return {
        "in use": in_use, "kept": kept, "evict next": evict, "store": store,
        "logs and events": logs, "other": other, "free": free,
    }  # fmt: skip


def copy_rows(
    copies: Sequence[CopyItem], typed: str, columns: int
) -> tuple[list[tuple[str, list[Line | str]]], str]:
    """The staged models that match, largest first; and how many, or what is wrong."""
    try:
        wanted = parse_filter(typed)
        kept, trouble = [copy for copy in copies if wanted.fits(_fields(copy))], ""
    except BadFilter as error:
        kept, trouble = list(copies), str(error)
    room = max(16, columns - 62)
    rows = [
        (copy["id"], _row(copy, room))
        for copy in sorted(kept, key=lambda copy: -(copy["sizeBytes"] or 0))
    ]
    return rows, trouble or f"{len(kept)} of {len(copies)}"


def _fields(copy: CopyItem) -> dict[str, str]:
    named = {"node": copy["node"], "model": copy["modelId"], "state": copy["state"] or ""}
    return {**named, "": " ".join([*named.values(), *copy["inUseBy"]])}


def _row(copy: CopyItem, room: int) -> list[Line | str]:
    unused = copy.get("unusedSeconds")
    state = copy["state"] or ""
    return [
        shorten(copy["node"], 18),
        line((shorten(copy["modelId"], room), "strong")),
        line(f"{size_text(copy['sizeBytes'] or 0):>10}"),
        line(f"{'–' if unused is None else age_text(unused):>9}"),
        line((state, _STATES.get(state))),
        line((", ".join(copy["inUseBy"]), "muted")),
    ]
