"""Previews as rows: every way to place a model with its arithmetic, or the reason why not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from skulkctl.output.layout import hanging, unique_prefixes
from skulkctl.output.tables import EMPTY, Column, Resource, plain, render
from skulkctl.placement.plans import RankItem, need_columns, planned, refusal_lines

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.placement import PlacementPreview, PlacementPreviewResponse


class PreviewItem(TypedDict):
    """One way to place a model as `skulkctl preview -o json` prints it."""

    planId: str | None
    modelId: str
    sharding: str | None
    contextTokenLimit: int | None
    storageBytes: int | None
    nodes: list[str]
    ranks: list[RankItem]
    link: str
    fits: bool
    reason: str | None
    hints: list[str]


def _node_count(value: object) -> str:
    return str(len(value)) if isinstance(value, list) and value else EMPTY


PREVIEWS = Resource(
    kind="PreviewList",
    name_path="planId",
    empty_hint="the daemon has not seen any node yet:  skulkctl nodes",
    columns=(
        Column("sharding", "sharding", "Pipeline (by layers) or Tensor."),
        Column("link", "link", "How the ranks are connected: MlxRing or MlxJaccl (RDMA).", spare=1),
        Column("fits", "fits", "Whether the model can be placed this way.", status=True),
        Column("count", "nodes", "Number of nodes.", text=_node_count, right=True, spare=3),
        Column("nodes", "nodes", "Nodes that would hold a shard, by rank."),
        Column(
            "context", "contextTokenLimit", "Maximum context length in tokens.", right=True, spare=2
        ),
        Column("plan", "planId", "Id of the plan, for place --plan."),
        Column("reason", "reason", "Why the model cannot be placed this way.", wide=True),
    ),
)
_PLAN = Column("plan", "planId", "Plan.", short=unique_prefixes(9))


def preview_items(state: ClusterState, answer: PlacementPreviewResponse) -> list[PreviewItem]:
    """One item for each way that differs from the others, those that work first."""
    items: list[PreviewItem] = []
    seen: set[object] = set()
    for preview in answer.previews:
        item = _item(state, preview)
        # On one node all four combinations are the same thing.
        key = item["planId"] or (item["sharding"], item["link"])
        if key not in seen:
            seen.add(key)
            items.append(item)
    return sorted(items, key=lambda item: not item["fits"])


def _item(state: ClusterState, preview: PlacementPreview) -> PreviewItem:
    if preview.instance is None:
        return _refused(state, preview)
    plan = planned(state, preview, preview.instance)
    return {
        "planId": plan["planId"],
        "modelId": plan["modelId"],
        "sharding": plan["sharding"],
        "contextTokenLimit": plan["contextTokenLimit"],
        "storageBytes": plan["storageBytes"],
        "nodes": plan["nodes"],
        "ranks": plan["ranks"],
        "link": type(preview.instance).__name__.removesuffix("Instance"),
        "fits": True,
        "reason": None,
        "hints": [],
    }


def _refused(state: ClusterState, preview: PlacementPreview) -> PreviewItem:
    why, hints = refusal_lines((preview.error or "no reason given").splitlines(), state)
    return {
        "planId": None,
        "modelId": preview.model_id,
        "sharding": preview.sharding,
        "contextTokenLimit": None,
        "storageBytes": None,
        "nodes": [],
        "ranks": [],
        "link": preview.instance_meta,
        "fits": False,
        "reason": "; ".join(why),
        "hints": hints,
    }


def preview_screen(items: Sequence[PreviewItem], table: str, room: int | None = None) -> str:
    """The table, then the arithmetic of each plan, then the reasons."""
    parts = [table]
    ranks = [{**rank, "planId": item["planId"]} for item in items for rank in item["ranks"]]
    if ranks:
        parts.append(render((_PLAN, *need_columns(ranks)), ranks, room=room))
    return "\n".join(parts + [_reasons(item, room) for item in items if not item["fits"]])


def _reasons(item: PreviewItem, room: int | None) -> str:
    head = f"{plain(item['sharding'])} over {plain(item['link'])} is not possible:"
    reasons = (item["reason"] or "").split("; ")
    lines = [head, *(line for reason in reasons for line in hanging("  ", reason, room))]
    return "".join(f"{line}\n" for line in lines)


def preview_hints(items: Sequence[PreviewItem]) -> list[str]:
    """What to type next: the plan to carry out, or what would make one possible."""
    fitting = [item for item in items if item["fits"]]
    if fitting:
        first = fitting[0]
        return [f"skulkctl place {first['modelId']} --plan {first['planId']} --wait"]
    return list(dict.fromkeys(hint for item in items for hint in item["hints"]))
