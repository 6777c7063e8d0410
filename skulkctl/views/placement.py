"""Placements: what the planner would do, and why it does not. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from skulkctl.layout import hanging
from skulkctl.tables import EMPTY, Column, plain, render, size
from skulkctl.units import size_text
from skulkctl.views.instances import instance_item, layers_text, short_instance
from skulkctl.views.nodes import node_ids, node_name
from skulkctl.views.read import Document, integer, mapping, sequence, tagged, text

SHARDINGS = ("Pipeline", "Tensor")
METAS = ("MlxRing", "MlxJaccl")
_HINT = "hint: "

PLAN = (
    # Ranks are in order, and the sum can be checked without the layers.
    Column("rank", "rank", "Rank.", right=True, spare=5),
    Column("node", "node", "Node of this rank."),
    Column("layers", "layers", "Layers it holds, of all.", spare=6),
    Column("weights", "weightBytes", "Weights it holds.", text=size, right=True),
)


ARITHMETIC = (
    Column("overhead", "overheadBytes", "Working memory on top.", text=size, right=True, spare=2),
    Column(
        "kv", "kvBytes", "Room for a conversation of 8192 tokens.", text=size, right=True, spare=3
    ),
    Column("floor", "floorBytes", "What every runner takes.", text=size, right=True, spare=4),
    Column("need", "needBytes", "All of it together.", text=size, right=True),
    Column("usable", "usableBytes", "What the node may give.", text=size, right=True),
)
_POOL = Column("of", "pool", "Memory that models go to: RAM or GPU.")
_POOLS = {"ram": "RAM", "vram": "GPU"}


def _unpacked(value: object) -> str:
    return f"to float32 from {size(value)}" if isinstance(value, int) else EMPTY


_UNPACKED = Column(
    "unpacked", "unpackedFromBytes", "Stored size of weights that are unpacked.", text=_unpacked
)


def placement_body(
    model_id: str,
    sharding: str,
    meta: str,
    min_nodes: int,
    excluded: Sequence[str],
    only: Sequence[str] = (),
) -> dict[str, object]:
    """The body of `POST /place_instance`."""
    body: dict[str, object] = {
        "model_id": model_id,
        "sharding": sharding,
        "instance_meta": meta,
        "min_nodes": min_nodes,
        "excluded_nodes": list(excluded),
    }
    return {**body, "only_nodes": list(only)} if only else body


def choose_preview(answer: object, body: Document) -> Document | None:
    """The smallest placement among the previews that does what the body asks for."""
    fitting = [
        (_node_count(preview), index, preview)
        for index, preview in enumerate(matching_previews(answer, body))
        if _node_count(preview) >= max(1, integer(body, "min_nodes") or 1)
    ]
    return min(fitting)[2] if fitting else None


def matching_previews(answer: object, body: Document) -> list[Document]:
    """The previews of the same sharding and connection, with an instance or an error."""
    return [
        preview
        for preview in sequence(answer, "previews")
        if isinstance(preview, Mapping)
        and preview.get("sharding") == body["sharding"]
        and preview.get("instance_meta") == body["instance_meta"]
    ]


def _node_count(preview: Document) -> int:
    _, instance = tagged(preview.get("instance"))
    return len(mapping(instance, "shardAssignments", "nodeToRunner"))


def planned_instance(state: object, preview: Document) -> dict[str, object]:
    """What a preview would place where; its throw-away ids are left out."""
    item = instance_item(state, "", preview.get("instance"))
    weights = mapping(preview, "memory_delta_by_node")
    ranks = [
        {
            "rank": runner["rank"],
            "node": runner["node"],
            "nodeId": runner["nodeId"],
            "layers": layers_text(runner),
            "weightBytes": integer(weights, str(runner["nodeId"])),
            **_arithmetic(mapping(preview, "need_by_node", str(runner["nodeId"]))),
        }
        for runner in sequence(item, "runners")
        if isinstance(runner, Mapping)
    ]
    kept = ("modelId", "kind", "sharding", "contextTokenLimit", "storageBytes", "nodes")
    planned = {**{key: item[key] for key in kept}, "ranks": ranks}
    return {"planId": plan_id(planned), **planned}


def _arithmetic(need: Document) -> dict[str, object]:
    """The parts of a need; a stock node does not tell them."""
    if not need:
        return {}
    keys = {
        "overheadBytes": "overhead_bytes",
        "kvBytes": "kv_bytes",
        "floorBytes": "floor_bytes",
        "needBytes": "total_bytes",
        "usableBytes": "usable_bytes",
    }
    parts: dict[str, object] = {ours: integer(need, theirs) for ours, theirs in keys.items()}
    if (stored := integer(need, "unpacked_from_bytes")) is not None:
        parts["unpackedFromBytes"] = stored
    return {**parts, "pool": _POOLS.get(text(need, "pool") or "ram")}


def need_columns(ranks: Sequence[Document]) -> tuple[Column, ...]:
    """Columns for the ranks of plans: what is known, and only where there is something to say."""
    if not any("needBytes" in rank for rank in ranks):
        return PLAN
    on_gpu = any(rank.get("pool") == _POOLS["vram"] for rank in ranks)
    unpacked = any("unpackedFromBytes" in rank for rank in ranks)
    special = [*([_POOL] if on_gpu else []), *([_UNPACKED] if unpacked else [])]
    return (*PLAN, *ARITHMETIC, *special)


def plan_id(planned: Document) -> str:
    """A name for who would hold what; the same plan has the same name tomorrow."""
    ranks = [
        [rank["nodeId"], rank["layers"]]
        for rank in sequence(planned, "ranks")
        if isinstance(rank, Mapping)
    ]
    facts = [planned["modelId"], planned["kind"], planned["sharding"], ranks]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return f"plan-{digest[:12]}"


def preview_of_plan(state: object, answer: object, wanted: str) -> Document | None:
    """The preview that is this plan."""
    for preview in sequence(answer, "previews"):
        if not isinstance(preview, Mapping) or not preview.get("instance"):
            continue
        if planned_instance(state, preview)["planId"] == wanted:
            return preview
    return None


def plan_screen(planned: Document, room: int | None = None) -> str:
    """The plan for people."""
    ranks = [rank for rank in sequence(planned, "ranks") if isinstance(rank, Mapping)]
    head = f"would place {planned['modelId']} on {', '.join(_names(planned))}"
    sharding, kind = plain(planned["sharding"]), plain(planned["kind"])
    context = plain(planned["contextTokenLimit"])
    shape = f"{sharding}, {kind}, context {context}, {planned['planId']}"
    lines = "\n".join(hanging("", f"{head}  ({shape})", room))
    return f"{lines}\n\n{render(need_columns(ranks), ranks, room=room)}"


def placed_line(item: Document, action: str) -> str:
    """`placing skulk/tiny (7f3c2a10) on kite1`."""
    nodes = ", ".join(_names(item))
    name = f" ({short_instance(item['id'])})" if item["id"] else ""
    where = f" on {nodes}" if nodes else ""
    return f"{action} {item['modelId']}{name}{where}\n"


def place_again(instance_id: str, model_id: str) -> str:
    """What to type where an instance cannot be restarted."""
    return f"skulkctl delete {short_instance(instance_id)} && skulkctl place {model_id} --wait"


def outcome(action: str, item: Document) -> dict[str, object]:
    """What a command that changes instances prints as JSON."""
    return {"action": action, "dryRun": action.startswith("would "), "instance": dict(item)}


def _names(document: Document) -> list[str]:
    return [plain(name) for name in sequence(document, "nodes")]


def new_instance_id(before: Iterable[str], state: object, model_id: str) -> str | None:
    """An instance of the model that was not there before; a stock node tells it no other way."""
    known = set(before)
    for instance_id, instance in mapping(state, "instances").items():
        _, body = tagged(instance)
        if instance_id not in known and text(body, "shardAssignments", "modelId") == model_id:
            return instance_id
    return None


def refusal_lines(lines: Sequence[str], state: object) -> tuple[list[str], list[str]]:
    """Reasons and hints of a refusal: nodes by name, one reason a line."""
    reasons: list[str] = []
    hints: list[str] = []
    for line in lines:
        said = _in_gib(_with_names(line, state))
        if said.startswith(_HINT):
            hints.append(said.removeprefix(_HINT))
        else:
            reasons += _sentences(said)
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


def _with_names(line: str, state: object) -> str:
    for node_id in node_ids(state):
        line = line.replace(node_id, node_name(state, node_id))
    return line


def room_hint(instances: Sequence[Document]) -> str | None:
    """The delete that would free most memory."""
    known = [item for item in instances if isinstance(item["storageBytes"], int)]
    if not known:
        return None
    largest = max(known, key=lambda item: integer(item, "storageBytes") or 0)
    held = size_text(integer(largest, "storageBytes") or 0)
    short = short_instance(largest["id"])
    return f"free memory:  skulkctl delete {short}   ({largest['modelId']}, {held})"
