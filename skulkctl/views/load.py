"""Load as rows: from `/v1/load` to one camelCase item per node, and what is left to do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from skulkctl.nodes.rows import NO_ANSWER
from skulkctl.tables import EMPTY, Column, Resource
from skulkctl.units import age_text
from skulkctl.views.read import Document, flag, integer, mapping, number, sequence, text

TOTAL = "total"


def milliseconds(value: object) -> str:
    return age_text(value / 1000) if isinstance(value, int | float) else EMPTY


LOAD = Resource(
    kind="LoadList",
    name_path="name",
    columns=(
        Column("node", "name", "Name of the node; total for all that answered."),
        Column("state", "state", "ok, draining, or NO ANSWER.", status=True),
        Column("active", "activeJobs", "Work in progress.", right=True),
        Column("queued", "queuedJobs", "Work that waits for a place.", right=True),
        Column("free", "freeSlots", "Free places; none while it drains.", right=True),
        Column("places", "maxConcurrency", "Places of the models that are ready.", right=True),
        Column(
            "latency", "avgLatencyMs", "Mean of the last 50.", milliseconds, right=True, spare=2
        ),
        Column(
            "failures", "recentFailureCount", "Recent failures, ten at most.", right=True, spare=1
        ),
        Column("chat", "chat", "Active and queued chat requests.", wide=True),
        Column("agentic", "agentic", "Active and queued requests with tools.", wide=True),
        Column("generic", "genericJob", "Active and queued generic jobs.", wide=True),
        Column("last-failure", "lastFailure", "Code of the newest failure.", wide=True),
        Column("draining-since", "drainingSince", "When it was told to drain.", wide=True),
        Column("id", "id", "Id of this session.", wide=True),
    ),
)


def load_items(load: object, *, all_nodes: bool) -> list[dict[str, object]]:
    """The node that was asked, or every node; then all together."""
    own = text(load, "localNodeId")
    rows = [row for row in sequence(load, "nodes") if all_nodes or text(row, "nodeId") == own]
    items = sorted((_item(row) for row in rows), key=lambda item: str(item["name"]).casefold())
    total = {**_numbers(mapping(load, "total")), "name": TOTAL, "id": None, "state": None}
    return [*items, total]


def _item(row: object) -> dict[str, object]:
    load = mapping(row, "load")
    state = "draining" if flag(load, "draining") else "ok"
    failures = sequence(load, "recentFailures")
    return {
        "name": text(row, "name"),
        "id": text(row, "nodeId"),
        "state": state if load else NO_ANSWER,
        "error": text(row, "error"),
        **_numbers(load),
        "avgLatencyMs": integer(load, "avgLatencyMs"),
        "recentFailureCount": integer(load, "recentFailureCount"),
        "lastFailure": text(failures[0], "code") if failures else None,
        "drainingSince": text(load, "drainingSince"),
        "work": list(sequence(load, "work")),
    }


def _numbers(load: Document) -> dict[str, object]:
    classes = mapping(load, "classes")
    return {
        "activeJobs": integer(load, "activeJobs"),
        "queuedJobs": integer(load, "queuedJobs"),
        "freeSlots": integer(load, "freeSlots"),
        "maxConcurrency": integer(load, "maxConcurrency"),
        **{name: _pair(mapping(classes, name)) for name in ("chat", "agentic", "genericJob")},
    }


def _pair(load: Document) -> str | None:
    active, queued = integer(load, "activeJobs"), integer(load, "queuedJobs")
    return None if active is None else f"{active}+{queued or 0}"


def left_over(load: object, nodes: Collection[str]) -> list[str]:
    """A line for everything that these nodes still have to finish; a node that is gone has none."""
    lines: list[str] = []
    for row in sequence(load, "nodes"):
        if text(row, "nodeId") not in nodes:
            continue
        name = text(row, "name") or EMPTY
        if flag(row, "ok") is False:
            lines.append(f"{name}: no answer: {text(row, 'error')}")
        lines += [f"{name}: {_work(entry)}" for entry in sequence(row, "load", "work")]
    return lines


def _work(entry: object) -> str:
    what = "job" if text(entry, "kind") == "gateway_job" else "request"
    since = number(entry, "seconds")
    age = f", {age_text(since)}" if since is not None else ""
    status = (text(entry, "status") or "").lower()
    return f"{what} {(text(entry, 'id') or EMPTY)[:8]} of {text(entry, 'model')} ({status}{age})"


def in_short(lines: Sequence[str]) -> str:
    """For one line of progress."""
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{lines[0]}{more}" if lines else "nothing left"
