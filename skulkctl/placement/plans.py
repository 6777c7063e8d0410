"""Plans: what the planner would place where, and why it does not. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict

from skulkctl.output.layout import hanging
from skulkctl.output.tables import EMPTY, Column, plain, render, share, size
from skulkctl.output.units import size_text
from skulkctl.placement.instances import InstanceItem, instance_item, layers_text, short_instance
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.instances import Instance
    from skulkd.wire.placement import (
        NodeNeed,
        PlaceInstanceParams,
        PlacementPreview,
        PlacementPreviewResponse,
    )

_HINT = "hint: "

PLAN = (
    # Ranks are in order, and the sum can be checked without the layers.
    Column("rank", "rank", "Rank.", right=True, spare=5),
    Column("node", "node", "Node that runs this rank."),
    Column("layers", "layers", "Layers on this node / all layers.", spare=6),
    Column("weights", "weightBytes", "Memory for weights on this node.", text=size, right=True),
)


ARITHMETIC = (
    Column(
        "overhead", "overheadBytes", "Additional working memory.", text=size, right=True, spare=2
    ),
    Column(
        "kv", "kvBytes", "Memory for the KV cache of 8192 tokens.", text=size, right=True, spare=3
    ),
    Column(
        "floor",
        "floorBytes",
        "Fixed memory of each runner process.",
        text=size,
        right=True,
        spare=4,
    ),
    Column("need", "needBytes", "Total memory needed.", text=size, right=True),
    Column(
        "usable",
        "usableBytes",
        "Memory available on the node.",
        text=size,
        right=True,
        ratio=share("needBytes", "usableBytes"),
    ),
)
_POOL = Column("of", "pool", "Kind of memory that holds the model: RAM or GPU.")
_POOLS = {"ram": "RAM", "vram": "GPU"}


def _unpacked(value: object) -> str:
    return f"to float32 from {size(value)}" if isinstance(value, int) else EMPTY


_UNPACKED = Column(
    "unpacked",
    "unpackedFromBytes",
    "Stored size of weights that are unpacked on loading.",
    text=_unpacked,
)


class RankItem(TypedDict):
    """What one rank of a plan would hold; the arithmetic is there when the server tells it."""

    rank: int
    node: str
    nodeId: str
    layers: str
    weightBytes: int | None
    overheadBytes: NotRequired[int]
    kvBytes: NotRequired[int]
    floorBytes: NotRequired[int]
    needBytes: NotRequired[int]
    usableBytes: NotRequired[int]
    pool: NotRequired[str | None]
    unpackedFromBytes: NotRequired[int]


class PlanItem(TypedDict):
    """What would be placed; the throw-away ids of a preview are left out."""

    planId: str
    modelId: str
    kind: str | None
    sharding: str | None
    contextTokenLimit: int | None
    storageBytes: int | None
    nodes: list[str]
    ranks: list[RankItem]


class PlacedItem(TypedDict):
    """An instance of which only the names may be known yet."""

    id: str | None
    modelId: str
    nodes: list[str]


def choose_preview(
    answer: PlacementPreviewResponse, wanted: PlaceInstanceParams
) -> PlacementPreview | None:
    """The smallest placement among the previews that does what is asked for."""
    fitting = [
        (count, index, preview)
        for index, preview in enumerate(matching_previews(answer, wanted))
        if (count := _node_count(preview)) >= max(1, wanted.min_nodes)
    ]
    return min(fitting, key=lambda found: found[:2])[2] if fitting else None


def matching_previews(
    answer: PlacementPreviewResponse, wanted: PlaceInstanceParams
) -> list[PlacementPreview]:
    """The previews of the same sharding and connection, with an instance or an error."""
    return [
        preview
        for preview in answer.previews
        if preview.sharding == wanted.sharding and preview.instance_meta == wanted.instance_meta
    ]


def _node_count(preview: PlacementPreview) -> int:
    if preview.instance is None:
        return 0
    return len(preview.instance.shard_assignments.node_to_runner)


def planned(state: ClusterState, preview: PlacementPreview, instance: Instance) -> PlanItem:
    """What a preview with an instance would place where."""
    item = instance_item(state, "", instance)
    weights, needs = preview.memory_delta_by_node or {}, preview.need_by_node or {}
    ranks: list[RankItem] = [
        {
            "rank": runner["rank"],
            "node": runner["node"],
            "nodeId": runner["nodeId"],
            "layers": layers_text(runner),
            "weightBytes": weights.get(NodeId(runner["nodeId"])),
            **_arithmetic(needs.get(NodeId(runner["nodeId"]))),  # type: ignore[typeddict-item]
        }
        for runner in item["runners"]
    ]
    return {
        "planId": plan_id(item, ranks),
        "modelId": item["modelId"],
        "kind": item["kind"],
        "sharding": item["sharding"],
        "contextTokenLimit": item["contextTokenLimit"],
        "storageBytes": item["storageBytes"],
        "nodes": item["nodes"],
        "ranks": ranks,
    }


def _arithmetic(need: NodeNeed | None) -> dict[str, int | str | None]:
    """The parts of a need, where the server tells them."""
    if need is None:
        return {}
    parts = {
        "overheadBytes": need.overhead_bytes,
        "kvBytes": need.kv_bytes,
        "floorBytes": need.floor_bytes,
        "needBytes": need.total_bytes,
        "usableBytes": need.usable_bytes,
        "pool": _POOLS.get(need.pool),
    }
    stored = need.unpacked_from_bytes
    return parts if stored is None else {**parts, "unpackedFromBytes": stored}


def need_columns(ranks: Sequence[Mapping[str, object]]) -> tuple[Column, ...]:
    """Columns for the ranks of plans: what is known, and only where there is something to say."""
    if not any("needBytes" in rank for rank in ranks):
        return PLAN
    on_gpu = any(rank.get("pool") == _POOLS["vram"] for rank in ranks)
    unpacked = any("unpackedFromBytes" in rank for rank in ranks)
    special = [*([_POOL] if on_gpu else []), *([_UNPACKED] if unpacked else [])]
    return (*PLAN, *ARITHMETIC, *special)


def plan_id(item: InstanceItem, ranks: Sequence[RankItem]) -> str:
    """A name for who would hold what; the same plan has the same name tomorrow."""
    held = [[rank["nodeId"], rank["layers"]] for rank in ranks]
    facts = [item["modelId"], item["kind"], item["sharding"], held]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return f"plan-{digest[:12]}"


def preview_of_plan(
    state: ClusterState, answer: PlacementPreviewResponse, wanted: str
) -> PlacementPreview | None:
    """The preview that is this plan."""
    for preview in answer.previews:
        instance = preview.instance
        if instance is not None and planned(state, preview, instance)["planId"] == wanted:
            return preview
    return None


def plan_screen(plan: PlanItem, room: int | None = None) -> str:
    """The plan for people."""
    head = f"would place {plan['modelId']} on {', '.join(plan['nodes'])}"
    context = plain(plan["contextTokenLimit"])
    shape = f"{plain(plan['sharding'])}, {plain(plan['kind'])}, context {context}, {plan['planId']}"
    lines = "\n".join(hanging("", f"{head}  ({shape})", room))
    return f"{lines}\n\n{render(need_columns(plan['ranks']), plan['ranks'], room=room)}"


def placed_line(item: InstanceItem | PlacedItem, action: str) -> str:
    """`placing skulk/tiny (7f3c2a10) on kite1`."""
    nodes = ", ".join(plain(name) for name in item["nodes"])
    name = f" ({short_instance(item['id'])})" if item["id"] else ""
    where = f" on {nodes}" if nodes else ""
    return f"{action} {item['modelId']}{name}{where}\n"


def place_again(instance_id: str, model_id: str) -> str:
    """What to type where an instance cannot be restarted."""
    return f"skulkctl delete {short_instance(instance_id)} && skulkctl place {model_id} --wait"


def outcome(action: str, item: InstanceItem | PlacedItem | PlanItem) -> dict[str, object]:
    """What a command that changes instances prints as JSON."""
    return {"action": action, "dryRun": action.startswith("would "), "instance": dict(item)}


def new_instance_id(before: Iterable[str], state: ClusterState, model_id: str) -> str | None:
    """An instance of the model that was not there before, for servers that do not name it."""
    known = set(before)
    for instance_id, instance in state.instances.items():
        if instance_id not in known and instance.shard_assignments.model_id == model_id:
            return instance_id
    return None


def refusal_lines(lines: Sequence[str], state: ClusterState) -> tuple[list[str], list[str]]:
    """Reasons and hints of a refusal: nodes by name, one reason a line."""
    reasons: list[str] = []
    hints: list[str] = []
    for line in lines:
        reason = _in_gib(_with_names(line, state))
        if reason.startswith(_HINT):
            hints.append(reason.removeprefix(_HINT))
        else:
            reasons += _sentences(reason)
    return reasons, hints


def _sentences(said: str) -> list[str]:
    """A reason a line: cut at semicolons that are in no brackets, and before a list of nodes."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(said):
        depth += (char in "([") - (char in ")]")
        if depth == 0 and said.startswith("; ", index):
            parts.append(said[start:index])
            start = index + 2
    parts.append(said[start:])
    return [line for part in parts for line in re.split(r"(?<=\)): (?=\[)", part) if line]


def _in_gib(line: str) -> str:
    """The contract's refusals write GB for 2**30 bytes; people get the right unit."""
    return re.sub(r"(?<=\d)GB\b", " GiB", line)


def _with_names(line: str, state: ClusterState) -> str:
    for node_id in state.node_ids:
        line = line.replace(node_id, state.node_name(node_id))
    return line


def room_hint(instances: Sequence[InstanceItem]) -> str | None:
    """The delete that would free most memory."""
    held = [(item["storageBytes"], item) for item in instances if item["storageBytes"] is not None]
    if not held:
        return None
    largest_bytes, largest = max(held, key=lambda found: found[0] or 0)
    short, amount = short_instance(largest["id"]), size_text(largest_bytes or 0)
    return f"free memory:  skulkctl delete {short}   ({largest['modelId']}, {amount})"
