"""Traces as tables and as a waterfall over ranks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skulkctl.errors import NotFound
from skulkctl.layout import unique_prefixes, without_owner
from skulkctl.names import Candidate, Note, find_one
from skulkctl.screen import pad, printable
from skulkctl.tables import Column, Resource, size
from skulkctl.views.read import Document, flag, integer, mapping, number, sequence, text

TRACES = Resource(
    kind="TraceList",
    name_path="taskId",
    columns=(
        Column(
            "task",
            "taskId",
            "Task id; a prefix is enough for the other verbs.",
            short=unique_prefixes(8),
            is_id=True,
        ),
        Column("created", "createdAt", "When it was written."),
        Column("model", "modelId", "Model that was asked.", short=without_owner),
        Column("ranks", "ranksText", "Ranks that measured, of all."),
        Column("size", "fileSize", "Size of the file.", text=size, right=True, spare=1),
        Column("command", "commandId", "Id of the chat completion.", wide=True),
        Column("categories", "categories", "Kinds of spans in it.", wide=True),
        Column("nodes", "nodes", "Nodes that measured.", wide=True),
    ),
    empty_hint="nothing is traced yet:  skulkctl trace on",
)

STATS = Resource(
    kind="TraceStats",
    name_path="category",
    columns=(
        Column("rank", "rank", "Rank, or all for the sum over every rank."),
        Column("category", "category", "Kind of span."),
        Column("self", "selfText", "Time in them, without spans nested in them.", right=True),
        Column("total", "totalText", "Time in them, with what is nested.", right=True),
        Column("count", "count", "How many there were.", right=True),
        Column("avg", "avgText", "Average of one.", right=True),
        Column("min", "minText", "Shortest.", right=True),
        Column("max", "maxText", "Longest.", right=True),
    ),
)

_BLOCK = "▮"
_MARK = "·"


def microseconds(value: float | None) -> str:
    """`812 us`, `4.1 ms`, `2.35 s`."""
    if value is None:
        return "-"
    if value < 1000:
        return f"{value:.0f} us"
    return f"{value / 1000:.1f} ms" if value < 1_000_000 else f"{value / 1e6:.2f} s"


def trace_items(answer: object) -> list[dict[str, object]]:
    """The rows of the list."""
    items = []
    for one in sequence(answer, "traces"):
        row = dict(mapping(one))
        ranks = [str(rank) for rank in sequence(one, "ranks")]
        missing = " PARTIAL" if flag(one, "partial") else ""
        of = integer(one, "worldSize")
        row["ranksText"] = f"{len(ranks)}/{of}{missing}" if of else None
        row["nodes"] = [
            text(node, "friendlyName") or text(node, "nodeId") or "?"
            for node in sequence(one, "sourceNodes")
        ]
        row["createdAt"] = (text(one, "createdAt") or "")[:19]
        items.append(row)
    return items


def stats_items(answer: Document) -> list[dict[str, object]]:
    """The timing table: all ranks together, then each."""
    rows = [_stats_row("all", *entry) for entry in mapping(answer, "byCategory").items()]
    ranks = mapping(answer, "byRank")
    for rank in sorted(ranks, key=lambda one: (len(one), one)):
        own = mapping(ranks[rank], "byCategory")
        rows += [_stats_row(rank, *entry) for entry in own.items()]
    return rows


def _stats_row(rank: str, category: str, found: object) -> dict[str, object]:
    shown: dict[str, object] = {
        "rank": rank,
        "category": category,
        "count": integer(found, "count"),
    }
    for name in ("self", "total", "avg", "min", "max"):
        value = number(found, f"{name}Us")
        shown[f"{name}Us"] = value
        shown[f"{name}Text"] = microseconds(value)
    return shown


def waterfall(answer: Document, columns: int, wide: bool) -> str:
    """Every span of every rank on one time axis; steps of decoding are drawn together."""
    events = [dict(mapping(one)) for one in sequence(answer, "traces")]
    if not events:
        return "the trace is empty\n"
    start = min(integer(one, "startUs") or 0 for one in events)
    end = max((integer(one, "startUs") or 0) + (integer(one, "durationUs") or 0) for one in events)
    rows = _rows(events, wide)
    label = max(len(name) for _, name, _ in rows)
    room = max(20, columns - label - 24)
    axis = f"0{microseconds(end - start):>{room - 1}}"
    head = f"{pad('rank', 5)}{pad('span', label)}  {'took':>9}  {axis}"
    lines = [head]
    for rank, name, spans in rows:
        took = sum(duration for _, duration in spans)
        bar = _bar(spans, start, max(end - start, 1), room)
        told = microseconds(took) if took else "-"
        lines.append(f"{pad(rank, 5)}{pad(printable(name), label)}  {told:>9}  {bar}".rstrip())
    return "\n".join(lines) + "\n"


Spans = list[tuple[int, int]]


def _rows(events: Sequence[Document], wide: bool) -> list[tuple[str, str, Spans]]:
    found: dict[tuple[int, str], Spans] = {}
    for event in events:
        name = text(event, "name") or "?"
        category = text(event, "category") or ""
        shown = f"{category}/{name}" if wide and category != name else name
        span = (integer(event, "startUs") or 0, integer(event, "durationUs") or 0)
        found.setdefault((integer(event, "rank") or 0, shown), []).append(span)
    ordered = sorted(found.items(), key=lambda one: (one[0][0], min(one[1])))
    return [
        (str(rank), name if len(spans) == 1 else f"{name} x{len(spans)}", spans)
        for (rank, name), spans in ordered
    ]


def _bar(spans: Spans, start: int, whole: int, room: int) -> str:
    cells = [" "] * room
    for at, duration in spans:
        first = min(room - 1, (at - start) * room // whole)
        last = min(room - 1, (at + duration - start) * room // whole)
        for cell in range(first, last + 1):
            cells[cell] = _BLOCK if duration else _MARK if cells[cell] == " " else cells[cell]
    return "".join(cells)


def find_trace(
    items: Sequence[Mapping[str, object]],
    typed: str | None,
    command: str | None,
    note: Note | None = None,
) -> str:
    """The task id that is meant. Raises NotFound, or UsageMistake when several match."""
    key = "taskId" if command is None else "commandId"
    wanted = (typed or "") if command is None else command.removeprefix("chatcmpl-")
    candidates = [
        Candidate(str(one["taskId"]), (str(one[key]),), (), f"{one[key]}  {one.get('modelId')}")
        for one in items
        if one.get(key)
    ]
    found = find_one("trace", candidates, wanted, note)
    if found is None:
        raise NotFound(
            f"no trace of {'task' if command is None else 'request'} {typed or command}",
            hints=["skulkctl trace list", "check that tracing is on:  skulkctl trace status"],
        )
    return found
