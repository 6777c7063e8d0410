"""Traces as tables and as a waterfall over ranks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from skulkctl.errors import NotFound
from skulkctl.names import Candidate, Note, find_one
from skulkctl.output.layout import unique_prefixes, without_owner
from skulkctl.output.tables import EMPTY, Column, Resource, size
from skulkctl.output.terminal import pad, printable

if TYPE_CHECKING:
    from skulkctl.traces.times import Times, TraceStats
    from skulkd.wire.tracing import TraceEventResponse, TraceItem

TRACES = Resource(
    kind="TraceList",
    name_path="taskId",
    columns=(
        Column(
            "task",
            "taskId",
            "Task id; other trace commands also accept a prefix.",
            short=unique_prefixes(8),
            is_id=True,
        ),
        Column("created", "createdAt", "When the trace was written."),
        Column("model", "modelId", "Model of the request.", short=without_owner),
        Column("ranks", "ranksText", "Ranks in the trace / all ranks."),
        Column("size", "fileSize", "Size of the trace file.", text=size, right=True, spare=1),
        Column("command", "commandId", "Id of the chat completion.", wide=True),
        Column("categories", "categories", "Span categories in the trace.", wide=True),
        Column("nodes", "nodes", "Nodes in the trace.", wide=True),
    ),
    empty_hint="no traces yet; trace new requests with:  skulkctl trace on",
)

STATS = Resource(
    kind="TraceStats",
    name_path="category",
    columns=(
        Column("rank", "rank", "Rank, or all for the sum over all ranks."),
        Column("category", "category", "Span category."),
        Column("self", "selfText", "Time in these spans, without nested spans.", right=True),
        Column("total", "totalText", "Time in these spans, including nested spans.", right=True),
        Column("count", "count", "Number of spans.", right=True),
        Column("avg", "avgText", "Average duration.", right=True),
        Column("min", "minText", "Shortest duration.", right=True),
        Column("max", "maxText", "Longest duration.", right=True),
    ),
)

_BLOCK = "▮"
_MARK = "·"

StartsAndDurations = list[tuple[int, int]]
"""Of spans, in microseconds."""


def microseconds(value: float) -> str:
    """`812 us`, `4.1 ms`, `2.35 s`."""
    if value < 1000:
        return f"{value:.0f} us"
    return f"{value / 1000:.1f} ms" if value < 1_000_000 else f"{value / 1e6:.2f} s"


def trace_rows(traces: Iterable[TraceItem]) -> list[dict[str, object]]:
    """The rows of the list: what the server says of each, and three texts for people."""
    return [
        {
            **trace.model_dump(mode="json", exclude_unset=True),
            "ranksText": _ranks(trace),
            "nodes": [node.friendly_name or node.node_id for node in trace.source_nodes],
            "createdAt": trace.created_at[:19],
        }
        for trace in traces
    ]


def _ranks(trace: TraceItem) -> str | None:
    """`1/2 PARTIAL`; None when the server does not tell."""
    if "world_size" not in trace.model_fields_set:
        return None
    return f"{len(trace.ranks)}/{trace.world_size}{' PARTIAL' if trace.partial else ''}"


def stats_rows(stats: TraceStats) -> list[dict[str, object]]:
    """The timing table: all ranks together, then each."""
    ranks = [("all", stats["byCategory"])]
    ranks += [(rank, own["byCategory"]) for rank, own in stats["byRank"].items()]
    return [
        _stats_row(rank, category, times) for rank, own in ranks for category, times in own.items()
    ]


def _stats_row(rank: str, category: str, times: Times) -> dict[str, object]:
    return {
        "rank": rank,
        "category": category,
        **times,
        "selfText": microseconds(times["selfUs"]),
        "totalText": microseconds(times["totalUs"]),
        "avgText": microseconds(times["avgUs"]),
        "minText": microseconds(times["minUs"]),
        "maxText": microseconds(times["maxUs"]),
    }


def find_trace(
    traces: Iterable[TraceItem], typed: str | None, command: str | None, note: Note | None = None
) -> str:
    """The task id that is meant. Raises NotFound, or UsageMistake when several match."""
    by_task = command is None
    wanted = typed or "" if command is None else command.removeprefix("chatcmpl-")
    candidates = [
        Candidate(one.task_id, (found,), (), f"{found}  {one.model_id or ''}".rstrip())
        for one in traces
        if (found := one.task_id if by_task else one.command_id)
    ]
    found = find_one("trace", candidates, wanted, note)
    if found is None:
        raise NotFound(
            f"no trace of {'task' if by_task else 'request'} {typed or command}",
            hints=["skulkctl trace list", "check that tracing is on:  skulkctl trace status"],
        )
    return found


def waterfall(events: Sequence[TraceEventResponse], columns: int, wide: bool) -> str:
    """Every span of every rank on one time axis; spans of one name are drawn in one line."""
    if not events:
        return "the trace is empty\n"
    start = min(event.start_us for event in events)
    end = max(event.start_us + event.duration_us for event in events)
    rows = _spans_by_line(events, wide)
    label = max(len(name) for _, name, _ in rows)
    room = max(20, columns - label - 24)
    axis = f"0{microseconds(end - start):>{room - 1}}"
    lines = [f"{pad('rank', 5)}{pad('span', label)}  {'took':>9}  {axis}"]
    for rank, name, spans in rows:
        took = sum(duration for _, duration in spans)
        bar = _bar(spans, start, max(end - start, 1), room)
        duration = microseconds(took) if took else EMPTY
        lines.append(f"{pad(rank, 5)}{pad(printable(name), label)}  {duration:>9}  {bar}".rstrip())
    return "\n".join(lines) + "\n"


def _spans_by_line(
    events: Sequence[TraceEventResponse], wide: bool
) -> list[tuple[str, str, StartsAndDurations]]:
    """Rank, name, and spans; by rank, then by the first start."""
    found: dict[tuple[int, str], StartsAndDurations] = {}
    for event in events:
        has_category = wide and event.category != event.name
        shown = f"{event.category}/{event.name}" if has_category else event.name
        found.setdefault((event.rank, shown), []).append((event.start_us, event.duration_us))
    ordered = sorted(found.items(), key=lambda one: (one[0][0], min(one[1])))
    return [
        (str(rank), name if len(spans) == 1 else f"{name} x{len(spans)}", spans)
        for (rank, name), spans in ordered
    ]


def _bar(spans: StartsAndDurations, start: int, whole: int, room: int) -> str:
    cells = [" "] * room
    for at, duration in spans:
        first = min(room - 1, (at - start) * room // whole)
        last = min(room - 1, (at + duration - start) * room // whole)
        for cell in range(first, last + 1):
            cells[cell] = _BLOCK if duration else _MARK if cells[cell] == " " else cells[cell]
    return "".join(cells)
