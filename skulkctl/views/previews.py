"""Previews as rows: every way to place a model with its arithmetic, or the reason why not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skulkctl.layout import hanging, unique_prefixes
from skulkctl.tables import EMPTY, Column, Resource, plain, render
from skulkctl.views.placement import need_columns, planned_instance, refusal_lines
from skulkctl.views.read import Document, sequence, tagged, text


def _node_count(value: object) -> str:
    return str(len(value)) if isinstance(value, list) and value else EMPTY


PREVIEWS = Resource(
    kind="PreviewList",
    name_path="planId",
    empty_hint="the daemon knows no node yet:  skulkctl nodes",
    columns=(
        Column("sharding", "sharding", "Pipeline (by layers) or Tensor."),
        Column("link", "link", "How the ranks are connected: MlxRing or MlxJaccl (RDMA).", spare=1),
        Column("fits", "fits", "Whether it can be placed so.", status=True),
        Column("count", "nodes", "How many nodes it takes.", text=_node_count, right=True, spare=3),
        Column("nodes", "nodes", "Nodes that would hold a shard, by rank."),
        Column("context", "contextTokenLimit", "Longest context in tokens.", right=True, spare=2),
        Column("plan", "planId", "Name of the plan, for place --plan."),
        Column("reason", "reason", "Why it cannot be placed so.", wide=True),
    ),
)
_PLAN = Column("plan", "planId", "Plan.", short=unique_prefixes(9))


def preview_items(state: object, answer: object) -> list[dict[str, object]]:
    """One item for each way that differs from the others, those that work first."""
    items: list[dict[str, object]] = []
    seen: set[object] = set()
    for preview in sequence(answer, "previews"):
        if not isinstance(preview, Mapping):
            continue
        item = _item(state, preview)
        # On one node all four combinations are the same thing.
        key = item["planId"] or (item["sharding"], item["link"])
        if key not in seen:
            seen.add(key)
            items.append(item)
    return sorted(items, key=lambda item: item["fits"] is False)


def _item(state: object, preview: Document) -> dict[str, object]:
    if preview.get("instance"):
        planned = planned_instance(state, preview)
        kind = tagged(preview.get("instance"))[0].removesuffix("Instance")
        return {
            **{key: value for key, value in planned.items() if key != "kind"},
            "link": kind,
            "fits": True,
            "reason": None,
            "hints": [],
        }
    lines = (text(preview, "error") or "no reason given").splitlines()
    why, hints = refusal_lines(lines, state)
    return {
        "planId": None,
        "modelId": text(preview, "model_id"),
        "sharding": text(preview, "sharding"),
        "contextTokenLimit": None,
        "storageBytes": None,
        "nodes": [],
        "ranks": [],
        "link": text(preview, "instance_meta"),
        "fits": False,
        "reason": "; ".join(why),
        "hints": hints,
    }


def preview_screen(items: Sequence[Document], table: str, room: int | None = None) -> str:
    """The table, then the arithmetic of each plan, then the reasons."""
    parts = [table]
    ranks = [
        {**rank, "planId": item["planId"]}
        for item in items
        for rank in sequence(item, "ranks")
        if isinstance(rank, Mapping)
    ]
    if ranks:
        parts.append(render((_PLAN, *need_columns(ranks)), ranks, room=room))
    return "\n".join(parts + [_reasons(item, room) for item in items if item["fits"] is False])


def _reasons(item: Document, room: int | None) -> str:
    head = f"{plain(item['sharding'])} over {plain(item['link'])} does not work:"
    reasons = str(item["reason"]).split("; ")
    lines = [head, *(line for reason in reasons for line in hanging("  ", reason, room))]
    return "".join(f"{line}\n" for line in lines)


def preview_hints(items: Sequence[Document]) -> list[str]:
    """What to type next: the plan to carry out, or what would make one possible."""
    fitting = [item for item in items if item["fits"] is True]
    if fitting:
        first = fitting[0]
        return [f"skulkctl place {first['modelId']} --plan {first['planId']} --wait"]
    found = [str(hint) for item in items for hint in sequence(item, "hints")]
    return list(dict.fromkeys(found))
