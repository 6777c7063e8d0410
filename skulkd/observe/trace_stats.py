"""What a trace adds up to, and how traces of several nodes become one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from skulkd.observe.trace_files import Trace
from skulkd.wire.ids import NodeId
from skulkd.wire.tracing import (
    TraceCategoryStats,
    TraceEventResponse,
    TraceItem,
    TraceRankStats,
    TraceSourceNode,
    TraceStatsResponse,
)

TOOL_TAG = "tool_call"


def stats_of(trace: Trace, sources: list[TraceSourceNode]) -> TraceStatsResponse:
    """Wall time over all ranks, and totals by category and rank; markers count with 0.

    A total is the time in which a rank had such a span open, so spans of one kind inside each
    other count once. A span of another kind inside one belongs to both.
    """
    events = trace.events
    start = min((event.start_us for event in events), default=0)
    end = max((event.start_us + event.duration_us for event in events), default=0)
    return TraceStatsResponse(
        task_id=trace.task_id,
        total_wall_time_us=end - start,
        by_category=_by_category(events),
        by_rank={
            str(rank): TraceRankStats(
                by_category=_by_category([event for event in events if event.rank == rank])
            )
            for rank in trace.ranks
        },
        source_nodes=sources,
    )


def _by_category(events: Sequence[TraceEventResponse]) -> dict[str, TraceCategoryStats]:
    found: dict[str, list[TraceEventResponse]] = {}
    for event in events:
        found.setdefault(event.category, []).append(event)
    return {category: _stats(found[category]) for category in sorted(found)}


def _stats(events: Sequence[TraceEventResponse]) -> TraceCategoryStats:
    durations = [event.duration_us for event in events]
    return TraceCategoryStats(
        total_us=_covered_us(events),
        count=len(durations),
        min_us=min(durations),
        max_us=max(durations),
        avg_us=sum(durations) / len(durations),
    )


def _covered_us(events: Sequence[TraceEventResponse]) -> int:
    """Time of each rank in at least one of these spans: one inside another counts once."""
    reached: dict[int, int] = {}
    total = 0
    for event in sorted(events, key=lambda one: one.start_us):
        end = event.start_us + event.duration_us
        start = max(event.start_us, reached.get(event.rank, event.start_us))
        total += max(0, end - start)
        reached[event.rank] = max(end, reached.get(event.rank, end))
    return total


def item_of(trace: Trace, sources: list[TraceSourceNode]) -> TraceItem:
    """One row of the list."""
    events = trace.events
    return TraceItem(
        task_id=trace.task_id,
        created_at=trace.created_at,
        file_size=trace.file_size,
        model_id=next((one.model_id for one in events if one.model_id is not None), None),
        task_kind=next((one.task_kind for one in events if one.task_kind is not None), None),
        categories=sorted({event.category for event in events}),
        tags=sorted({tag for event in events for tag in event.tags}),
        has_tool_activity=any(TOOL_TAG in event.tags for event in events),
        source_nodes=sources,
        command_id=trace.command_id,
        ranks=trace.ranks,
        world_size=trace.world_size,
        unfinished=trace.unfinished,
        partial=trace.partial,
    )


def source_nodes(
    trace: Trace, names: Mapping[NodeId, str], serving: NodeId
) -> list[TraceSourceNode]:
    """Who measured; the serving node when nothing says."""
    return [
        TraceSourceNode(node_id=node, friendly_name=names.get(node))
        for node in trace.nodes or [serving]
    ]


def merged_items(items: Iterable[TraceItem]) -> list[TraceItem]:
    """One row per task, the newest first; what any node knows counts."""
    found: dict[str, TraceItem] = {}
    for item in items:
        known = found.get(item.task_id)
        found[item.task_id] = item if known is None else _joined(known, item)
    return sorted(found.values(), key=lambda item: item.created_at, reverse=True)


def _joined(one: TraceItem, other: TraceItem) -> TraceItem:
    nodes = {node.node_id: node for node in (*other.source_nodes, *one.source_nodes)}
    ranks = sorted({*one.ranks, *other.ranks})
    size = max(one.world_size, other.world_size)
    # A rank's last part on one node is enough.
    finished = {rank for item in (one, other) for rank in item.ranks if rank not in item.unfinished}
    unfinished = [rank for rank in ranks if rank not in finished]
    return one.model_copy(
        update={
            "created_at": max(one.created_at, other.created_at),
            "file_size": max(one.file_size, other.file_size),
            "model_id": one.model_id or other.model_id,
            "task_kind": one.task_kind or other.task_kind,
            "categories": sorted({*one.categories, *other.categories}),
            "tags": sorted({*one.tags, *other.tags}),
            "has_tool_activity": one.has_tool_activity or other.has_tool_activity,
            "source_nodes": list(nodes.values()),
            "command_id": one.command_id or other.command_id,
            "ranks": ranks,
            "world_size": size,
            "unfinished": unfinished,
            "partial": bool(unfinished) or len(ranks) < size,
        }
    )


def merged(traces: Sequence[Trace]) -> Trace:
    """The same task as several nodes know it; each rank is taken from one of them."""
    first = traces[0]
    by_rank: dict[int, list[TraceEventResponse]] = {}
    for trace in traces:
        for rank in trace.ranks:
            own = [event for event in trace.events if event.rank == rank]
            if len(own) > len(by_rank.get(rank, ())):
                by_rank[rank] = own
    return Trace(
        first.task_id,
        max(trace.created_at for trace in traces),
        max(trace.file_size for trace in traces),
        [event for rank in sorted(by_rank) for event in by_rank[rank]],
        next((trace.command_id for trace in traces if trace.command_id), None),
        max(trace.world_size for trace in traces),
    )
