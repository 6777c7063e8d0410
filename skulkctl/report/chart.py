"""The lanes of an instance as inline SVG: one row for each rank, one colour for each family. Pure.

Colours are CSS classes, so that the page's themes decide them; every piece also has a title that
says in words what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from skulkctl.output.units import age_text
from skulkctl.ui.alphabet import WAIT
from skulkctl.ui.lanes import Mark, Span, marks_of, spans_of

if TYPE_CHECKING:
    from skulkctl.ui.snapshot import Snapshot
    from skulkctl.verdict.ranks import Group, Rank

WIDTH, LABEL, ROW, TOP = 1000, 190, 34, 26
LEAST_S, MOST_S = 10.0, 300.0
_TICKS = 6


def lanes_chart(snapshot: Snapshot, group: Group) -> str:
    """What every rank did, up to the moment of the capture."""
    now_s = snapshot.now_s
    marks = {rank.rank: marks_of(rank, snapshot.skews) for rank in group.ranks}
    start_s = _start(list(marks.values()), now_s)
    height = TOP + ROW * len(group.ranks) + 8
    scale = (WIDTH - LABEL - 10) / max(now_s - start_s, 0.001)
    rows = []
    finding = snapshot.finding(group)
    culprit, victims = finding.culprit, {victim.rank for victim in finding.victims}
    for number, rank in enumerate(group.ranks):
        y = TOP + ROW * number
        spans = spans_of(rank, marks[rank.rank], now_s)
        if finding.is_problem and rank.rank in victims and spans:
            # The recorder says where it is; that it waits there is what the verdict found out.
            spans = [*spans[:-1], replace(spans[-1], family=WAIT)]
        is_culprit = culprit is not None and culprit.rank == rank.rank
        rows.append(_label(rank, y, is_culprit))
        rows.extend(_piece(span, start_s, scale, y) for span in spans if span.end_s > start_s)
        rows.extend(_cancels(marks[rank.rank], start_s, scale, y))
    axis = "".join(_ticks(start_s, now_s, scale, height))
    return (
        f'<svg class="lanes" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="lanes of {len(group.ranks)} ranks">{axis}{"".join(rows)}</svg>'
    )


def _start(lanes: Sequence[Sequence[Mark]], now_s: float) -> float:
    """Where the story begins: the newest request, with a little before it."""
    submitted = [
        mark.at_s for marks in lanes for mark in marks if mark.entry.phase == "task_submission"
    ]
    begun = max(submitted, default=now_s - 60.0)
    return now_s - min(max((now_s - begun) * 1.08, LEAST_S), MOST_S)


def _label(rank: Rank, y: float, is_culprit: bool) -> str:
    mark = "✖ " if is_culprit else ""
    style = "label culprit" if is_culprit else "label"
    text = escape(f"{mark}{rank.rank} {rank.node}"[:26])
    return f'<text class="{style}" x="{LABEL - 10}" y="{y + 20}">{text}</text>'


def _piece(span: Span, start_s: float, scale: float, y: float) -> str:
    left = LABEL + (max(span.start_s, start_s) - start_s) * scale
    size = max((span.end_s - max(span.start_s, start_s)) * scale, 0.6)
    entry = span.entry
    took = age_text(max(0.0, span.end_s - span.start_s))
    words = f"{_clock(span.start_s)} {entry.phase} {entry.event} {entry.detail or ''}".strip()
    return (
        f'<rect class="{span.family}" x="{left:.1f}" y="{y + 4}" width="{size:.1f}" '
        f'height="{ROW - 10}"><title>{escape(f"{words}: {span.family}, {took}")}</title></rect>'
    )


def _cancels(marks: Sequence[Mark], start_s: float, scale: float, y: float) -> Iterator[str]:
    for mark in marks:
        if mark.is_supervisors and mark.at_s >= start_s:
            x = LABEL + (mark.at_s - start_s) * scale
            yield f'<path class="cancel" d="M{x:.1f} {y}v{ROW}"><title>cancel</title></path>'


def _ticks(start_s: float, now_s: float, scale: float, height: float) -> Iterator[str]:
    for number in range(_TICKS + 1):
        at_s = start_s + (now_s - start_s) * number / _TICKS
        x = LABEL + (at_s - start_s) * scale
        anchor = "end" if number == _TICKS else "middle" if number else "start"
        yield f'<path class="tick" d="M{x:.1f} {TOP - 6}V{height}"/>'
        yield f'<text class="time" x="{x:.1f}" y="14" text-anchor="{anchor}">{_clock(at_s)}</text>'


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S.%f")[:10]
