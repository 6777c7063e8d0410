"""Load as rows: one camelCase item per node, and what is left to do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict

from skulkctl.nodes.rows import NO_ANSWER
from skulkctl.output.tables import EMPTY, Column, Resource, share
from skulkctl.output.units import age_text

if TYPE_CHECKING:
    from skulkd.wire.load import ClassLoad, ClusterLoad, Load, NodeLoadRow, OpenWork

TOTAL = "total"


def milliseconds(value: object) -> str:
    return age_text(value / 1000) if isinstance(value, int | float) else EMPTY


LOAD = Resource(
    kind="LoadList",
    name_path="name",
    columns=(
        Column("node", "name", "Name of the node; total for all nodes that responded."),
        Column("state", "state", "ok, draining, or NO ANSWER.", status=True),
        Column("active", "activeJobs", "Active work.", right=True),
        Column("queued", "queuedJobs", "Work that waits for a slot.", right=True),
        Column("free", "freeSlots", "Free slots; 0 while the node is draining.", right=True),
        Column(
            "slots",
            "maxConcurrency",
            "Slots of the models that are ready.",
            right=True,
            ratio=share("activeJobs", "maxConcurrency"),
        ),
        Column(
            "latency",
            "avgLatencyMs",
            "Mean over the last 50 requests.",
            milliseconds,
            right=True,
            spare=2,
        ),
        Column(
            "failures", "recentFailureCount", "Recent failures, at most 10.", right=True, spare=1
        ),
        Column("chat", "chat", "Active and queued chat requests.", wide=True),
        Column("agentic", "agentic", "Active and queued requests with tools.", wide=True),
        Column("generic", "genericJob", "Active and queued generic jobs.", wide=True),
        Column("last-failure", "lastFailure", "Code of the newest failure.", wide=True),
        Column("draining-since", "drainingSince", "When draining started.", wide=True),
        Column("id", "id", "Id of the daemon's current session.", wide=True),
    ),
)


class LoadItem(TypedDict):
    """One node, or all together, as `skulkctl load -o json` prints it."""

    name: str
    id: str | None
    state: str | None
    error: NotRequired[str | None]
    activeJobs: int | None
    queuedJobs: int | None
    freeSlots: int | None
    maxConcurrency: int | None
    chat: str | None
    agentic: str | None
    genericJob: str | None
    avgLatencyMs: NotRequired[int | None]
    recentFailureCount: NotRequired[int | None]
    lastFailure: NotRequired[str | None]
    drainingSince: NotRequired[str | None]
    work: NotRequired[list[dict[str, object]]]


def load_items(load: ClusterLoad, *, all_nodes: bool) -> list[LoadItem]:
    """The node that was asked, or every node; then all together."""
    rows = [row for row in load.nodes if all_nodes or row.node_id == load.local_node_id]
    items = sorted((_item(row) for row in rows), key=lambda item: item["name"].casefold())
    return [*items, _numbers(TOTAL, load.total)]


def _item(row: NodeLoadRow) -> LoadItem:
    load = row.load
    state = NO_ANSWER if load is None else "draining" if load.draining else "ok"
    return {
        **_numbers(row.name, load),
        "id": row.node_id,
        "state": state,
        "error": row.error,
        "avgLatencyMs": load.avg_latency_ms if load else None,
        "recentFailureCount": load.recent_failure_count if load else None,
        "lastFailure": load.recent_failures[0].code if load and load.recent_failures else None,
        "drainingSince": load.draining_since if load else None,
        "work": [work.model_dump(mode="json") for work in load.work] if load else [],
    }


def _numbers(name: str, load: Load | None) -> LoadItem:
    return {
        "name": name,
        "id": None,
        "state": None,
        "activeJobs": load.active_jobs if load else None,
        "queuedJobs": load.queued_jobs if load else None,
        "freeSlots": load.free_slots if load else None,
        "maxConcurrency": load.max_concurrency if load else None,
        "chat": _pair(load.classes.chat) if load else None,
        "agentic": _pair(load.classes.agentic) if load else None,
        "genericJob": _pair(load.classes.generic_job) if load else None,
    }


def _pair(load: ClassLoad) -> str:
    return f"{load.active_jobs}+{load.queued_jobs}"


def left_over(load: ClusterLoad, nodes: Collection[str]) -> list[str]:
    """A line for everything that these nodes still have to finish; a node that is gone has none."""
    lines: list[str] = []
    for row in load.nodes:
        if row.node_id not in nodes:
            continue
        if not row.ok:
            lines.append(f"{row.name}: no answer: {row.error}")
        lines += [f"{row.name}: {_work(work)}" for work in (row.load.work if row.load else ())]
    return lines


def _work(work: OpenWork) -> str:
    what = "job" if work.kind == "gateway_job" else "request"
    age = f", {age_text(work.seconds)}" if work.seconds is not None else ""
    return f"{what} {work.id[:8]} of {work.model} ({work.status.lower()}{age})"


def in_short(lines: Sequence[str]) -> str:
    """For one line of progress."""
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{lines[0]}{more}" if lines else "nothing left"
