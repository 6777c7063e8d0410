"""What its record says of a placed model: how often it moved and why, and when it goes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem, UnloadItem
    from skulkd.wire.ids import NodeId
    from skulkd.wire.placement_record import Move, PlacementAnswer, PlacementsAnswer


def with_moves(items: Sequence[InstanceItem], placements: PlacementsAnswer) -> list[InstanceItem]:
    """The instances with what their records say; `detail` tells why one stays where it failed."""
    rows = {str(row.instance_id): row for row in placements.placements}
    return [_with_record(item, rows.get(item["id"])) for item in items]


def _with_record(item: InstanceItem, row: PlacementAnswer | None) -> InstanceItem:
    record = row.record if row else None
    moves = record.moves if record else []
    stuck, detail = record.stuck if record else None, item["detail"]
    if stuck:
        detail = f"{detail or 'failed'}; not moved: {stuck.splitlines()[0]}"
    elif moves and detail:
        detail = f"{detail}; moved from {','.join(_names(moves[-1], moves[-1].from_nodes))}"
    return {
        **item,
        "detail": detail,
        "moves": [move.model_dump(mode="json") for move in moves],
        "notMoved": stuck,
        "excluded": sorted(record.excluded.values()) if record else [],
        "only": sorted(record.only.values()) if record else [],
        "unloads": _unloads(row) if row else None,
    }


def _unloads(row: PlacementAnswer) -> UnloadItem | None:
    on_demand = row.record.on_demand
    if on_demand is None:
        return None
    return {
        "at": row.unloads_at.isoformat().replace("+00:00", "Z") if row.unloads_at else None,
        "inUse": row.in_use,
        "keepAliveSeconds": on_demand.keep_alive_seconds,
    }


def move_text(move: Move) -> str:
    """`kite1 -> kite1,kite2 (memory-guard, 1 of 2)`."""
    start, end = _names(move, move.from_nodes), _names(move, move.to_nodes)
    count = f", {move.attempt} of {move.most}" if move.most is not None else ""
    return f"{','.join(start)} -> {','.join(end)} ({move.cause}{count})"


def move_line(move: Move) -> str:
    """The same with the reason."""
    return f"{move_text(move)}: {move.reason}"


def _names(move: Move, nodes: Sequence[NodeId]) -> list[str]:
    names: Mapping[NodeId, str] = move.names
    return [names.get(node, node) for node in nodes]
