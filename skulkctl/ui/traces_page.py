"""Traces as rows, as a waterfall over ranks with zoom, and as bars by phase. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skulkctl.output.terminal import pad
from skulkctl.output.units import size_text
from skulkctl.traces.rows import microseconds
from skulkctl.traces.times import trace_stats
from skulkctl.ui.lines import BLANK, Line, Piece, bar, line, shorten

if TYPE_CHECKING:
    from skulkd.wire.tracing import TraceEventResponse, TraceItem, TraceResponse

HEADERS = ("task", "created", "model", "ranks", "size")
_ROLES = ("compute", "start", "wait", "cancel", "other", "accent")
_FILLS = "█▓▒"


@dataclass(frozen=True)
class Zoom:
    """Which part of a trace is shown: where it begins, and how much, both as shares."""

    start: float = 0.0
    share: float = 1.0

    def by(self, factor: float) -> Zoom:
        """The middle stays where it is."""
        share = min(1.0, max(0.001, self.share * factor))
        middle = self.start + self.share / 2
        return Zoom(min(max(0.0, middle - share / 2), 1.0 - share), share)

    def move(self, by: float) -> Zoom:
        return Zoom(min(max(0.0, self.start + by * self.share), 1.0 - self.share), self.share)


def trace_rows(traces: Sequence[TraceItem], columns: int) -> list[tuple[str, list[Line | str]]]:
    room = max(12, columns - 62)
    return [
        (
            trace.task_id,
            [
                line((trace.task_id[:8], "strong")),
                trace.created_at[:19].replace("T", " "),
                shorten(trace.model_id or "–", room),
                line((f"{len(trace.ranks)}/{trace.world_size}", None),
                     (" ▲ partial" if trace.partial else "", "attention")),
                line(f"{size_text(trace.file_size):>10}"),
            ],
        )
        for trace in traces
    ]  # fmt: skip


def waterfall_lines(trace: TraceResponse, zoom: Zoom, columns: int) -> list[Line]:
    """One line for each kind of span of each rank, on one time axis."""
    events = trace.traces
    if not events:
        return [line((" the trace is empty", "muted"))]
    first = min(event.start_us for event in events)
    whole = max(event.start_us + event.duration_us for event in events) - first or 1
    start, span = first + zoom.start * whole, zoom.share * whole
    rows = _rows(events)
    label = min(max(len(name) for _, name, _ in rows), max(10, columns // 4))
    cells = max(10, columns - label - 18)
    roles = {name: _ROLES[number % len(_ROLES)] for number, name in enumerate(_categories(events))}
    left, right = microseconds(start - first), microseconds(start - first + span)
    axis = left + " " * max(1, cells - len(left) - len(right)) + right
    lines = [line((f" {'#':<3}{pad('span', label)}{'took':>11}  {axis}", "muted"))]
    for rank, name, own in rows:
        took = sum(event.duration_us for event in own)
        pieces = _bar(own, start, span, cells, roles)
        duration = microseconds(took) if took else "–"
        head = f" {rank:<3}{pad(shorten(name, label), label)}{duration:>11}  "
        lines.append(line((head, None), *pieces))
    return lines


def _categories(events: Sequence[TraceEventResponse]) -> list[str]:
    return list(dict.fromkeys(event.category.partition("/")[0] for event in events))


def _rows(
    events: Sequence[TraceEventResponse],
) -> list[tuple[int, str, list[TraceEventResponse]]]:
    found: dict[tuple[int, str], list[TraceEventResponse]] = {}
    for event in events:
        found.setdefault((event.rank, event.name), []).append(event)
    ordered = sorted(found.items(), key=lambda row: (row[0][0], row[1][0].start_us))
    return [
        (rank, name if len(own) == 1 else f"{name} ×{len(own)}", own)
        for (rank, name), own in ordered
    ]


def _bar(
    events: Sequence[TraceEventResponse],
    start: float,
    span: float,
    cells: int,
    roles: dict[str, str],
) -> list[Piece]:
    drawn: list[Piece] = [(" ", None)] * cells
    for event in events:
        begin = (event.start_us - start) / span * cells
        end = (event.start_us + event.duration_us - start) / span * cells
        if end < 0 or begin >= cells:
            continue
        role = roles[event.category.partition("/")[0]]
        fill = _FILLS[list(roles).index(event.category.partition("/")[0]) % len(_FILLS)]
        for cell in range(max(0, int(begin)), min(cells, max(int(begin) + 1, round(end)))):
            drawn[cell] = (fill if event.duration_us else "·", role)
    return drawn


def stats_lines(trace: TraceResponse, columns: int) -> list[Line]:
    """Where the time went, by phase, as bars of the whole."""
    stats = trace_stats(trace)
    times = sorted(stats["byCategory"].items(), key=lambda pair: -pair[1]["selfUs"])
    total = sum(own["selfUs"] for _, own in times) or 1
    name = min(28, max([len(category) for category, _ in times] or [8]))
    cells = max(8, min(50, columns - name - 44))
    wall = microseconds(stats["totalWallTimeUs"])
    head = f" {pad('by phase', name)}{'self':>11}{'':{cells + 9}}{'count':>7}{'mean':>11}"
    lines = [BLANK, line((f"{head}   wall {wall}", "muted"))]
    for category, own in times:
        share = own["selfUs"] / total
        lines.append(
            line(f" {pad(shorten(category, name), name)}{microseconds(own['selfUs']):>11}  ",
                 *bar(share, cells, "compute"), f" {share:4.0%}  {own['count']:>7}",
                 (f"{microseconds(own['avgUs']):>11}", "muted"))
        )  # fmt: skip
    return lines
