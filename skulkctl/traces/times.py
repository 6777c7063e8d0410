"""How long each kind of work took in a trace: with what is nested in it, and without. Pure.

Spans lie inside each other (the steps of a decode inside the decode), so durations must not be
added up: every moment of a rank belongs to one span, the innermost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from skulkd.wire.tracing import TraceEventResponse, TraceResponse


class Times(TypedDict):
    """Of one category, in microseconds."""

    totalUs: int
    selfUs: int
    count: int
    minUs: int
    maxUs: int
    avgUs: float


class RankTimes(TypedDict):
    byCategory: dict[str, Times]


class TraceStats(TypedDict):
    """As `skulkctl trace stats -o json` prints it: the reference's shape, and `selfUs`."""

    taskId: str
    totalWallTimeUs: int
    byCategory: dict[str, Times]
    byRank: dict[str, RankTimes]
    sourceNodes: list[dict[str, object]]


@dataclass(frozen=True, slots=True)
class Span:
    """One event of a rank; a marker has no length."""

    category: str
    start_us: int
    end_us: int


def spans_by_rank(events: Iterable[TraceEventResponse]) -> dict[int, list[Span]]:
    """The events of a trace, by rank."""
    found: dict[int, list[Span]] = {}
    for event in events:
        end_us = event.start_us + max(0, event.duration_us)
        found.setdefault(event.rank, []).append(Span(event.category, event.start_us, end_us))
    return dict(sorted(found.items()))


def covered_us(spans: Iterable[Span]) -> int:
    """Time in which at least one of these spans was open."""
    total = 0
    reached: int | None = None
    for span in sorted(spans, key=lambda one: one.start_us):
        start_us = span.start_us if reached is None else max(span.start_us, reached)
        total += max(0, span.end_us - start_us)
        reached = span.end_us if reached is None else max(span.end_us, reached)
    return total


def self_us(spans: Sequence[Span]) -> dict[str, int]:
    """Time of each category without what is nested in it; adds up to the time of the rank."""
    own = dict.fromkeys((span.category for span in spans), 0)
    begins = sorted(spans, key=lambda one: (one.start_us, -one.end_us))
    moments = sorted({moment for span in spans for moment in (span.start_us, span.end_us)})
    open_spans: list[Span] = []
    position = 0
    for moment, until in pairwise(moments):
        while position < len(begins) and begins[position].start_us <= moment:
            open_spans.append(begins[position])
            position += 1
        # What began last is innermost; one that has ended below it is dropped when it surfaces.
        while open_spans and open_spans[-1].end_us <= moment:
            open_spans.pop()
        if open_spans:
            own[open_spans[-1].category] += until - moment
    return own


def trace_stats(trace: TraceResponse) -> TraceStats:
    """The statistics of a trace."""
    ranks = spans_by_rank(trace.traces)
    return {
        "taskId": trace.task_id,
        "totalWallTimeUs": _wall_us([span for own in ranks.values() for span in own]),
        "byCategory": _by_category(list(ranks.values())),
        "byRank": {str(rank): {"byCategory": _by_category([own])} for rank, own in ranks.items()},
        "sourceNodes": [node.model_dump(mode="json") for node in trace.source_nodes],
    }


def _wall_us(spans: Sequence[Span]) -> int:
    """From the earliest start to the latest end."""
    if not spans:
        return 0
    return max(span.end_us for span in spans) - min(span.start_us for span in spans)


def _by_category(ranks: Sequence[Sequence[Span]]) -> dict[str, Times]:
    """Times of several ranks add up, times within one rank do not."""
    own = [self_us(spans) for spans in ranks]
    categories = sorted({span.category for spans in ranks for span in spans})
    return {
        category: _times(
            [[span for span in spans if span.category == category] for spans in ranks],
            sum(one.get(category, 0) for one in own),
        )
        for category in categories
    }


def _times(ranks: Sequence[Sequence[Span]], own_us: int) -> Times:
    lengths = [span.end_us - span.start_us for spans in ranks for span in spans]
    return {
        "totalUs": sum(covered_us(spans) for spans in ranks),
        "selfUs": own_us,
        "count": len(lengths),
        "minUs": min(lengths),
        "maxUs": max(lengths),
        "avgUs": sum(lengths) / len(lengths),
    }
