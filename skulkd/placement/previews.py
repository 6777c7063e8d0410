"""Every combination of sharding, connection and number of nodes: what it would be, or why not.

One row for each number of nodes that works, and one with the reason for a combination that works
nowhere. A row says what it would really be: on one node that is a pipeline of one over TCP,
whatever was asked for. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

from skulkd.placement.candidates import Cluster
from skulkd.placement.planner import PlacementPlan, plans_by_size
from skulkd.placement.refusals import Refusal
from skulkd.placement.wish import Wish
from skulkd.wire.placement import InstanceMeta, Sharding

SHARDINGS: tuple[Sharding, ...] = ("Pipeline", "Tensor")
METAS: tuple[InstanceMeta, ...] = get_args(InstanceMeta)


@dataclass(frozen=True, slots=True)
class Preview:
    """A combination that was asked for, and a plan or the reason why there is none."""

    wish: Wish
    outcome: PlacementPlan | Refusal


def previews(wish: Wish, cluster: Cluster) -> list[Preview]:
    """All four combinations, in the order of the contract; empty for an empty cluster."""
    if not cluster.nodes:
        return []
    return [
        row
        for sharding in SHARDINGS
        for meta in METAS
        for row in _combination(replace(wish, sharding=sharding, meta=meta), cluster)
    ]


def _combination(wish: Wish, cluster: Cluster) -> Iterator[Preview]:
    try:
        for found in plans_by_size(wish, cluster):
            yield Preview(wish, found)
    except Refusal as refusal:
        yield Preview(wish, refusal)
