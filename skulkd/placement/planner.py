"""Choose the nodes for a model: fewest first, then best links, staged files, free memory. Pure.

Checks run in the order of the reference, so that the first reason an operator reads is the same.
`plan` answers with ranks and their arithmetic; `built.py` makes an instance of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from skulkd.placement.candidates import Budget, Cluster, PlacementCandidate
from skulkd.placement.eligible import Eligible, eligible
from skulkd.placement.memory import Need, planned_need
from skulkd.placement.rdma_gaps import find_gaps, too_small
from skulkd.placement.refusals import (
    DoesNotFit,
    Dropped,
    InfoPending,
    NoRdma,
    NotDivisible,
    PipelineUnsupported,
    Refusal,
    RejectedCycle,
    ShortNode,
    TensorUnsupported,
    TooFewLayers,
)
from skulkd.placement.room import Room
from skulkd.placement.search import Search
from skulkd.placement.shape import tensor_obstacles
from skulkd.placement.unpacking import Holder, plan_weights
from skulkd.placement.wish import Wish
from skulkd.wire.ids import NodeId
from skulkd.wire.placement import InstanceMeta, Sharding

_NO_PIPELINE = frozenset({"mlx-community/DeepSeek-V3.1-8bit"})
_MOST_REASONS = 4


@dataclass(frozen=True, slots=True)
class PlannedRank:
    """One node of a plan, what it would hold and what it has."""

    node: PlacementCandidate
    start_layer: int
    end_layer: int
    part: Fraction
    need: Need
    budget: Budget


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """Who would hold what. `sharding` and `meta` are what it is, not what was asked for."""

    wish: Wish
    sharding: Sharding
    meta: InstanceMeta
    ranks: tuple[PlannedRank, ...]
    context_tokens: int | None
    unpacked: bool = False
    """Whether the needs are those of weights that are unpacked to float32."""

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        return tuple(rank.node.node_id for rank in self.ranks)


def plan(wish: Wish, cluster: Cluster) -> PlacementPlan:
    """The best placement. Raises Refusal."""
    return next(iter(_plans(wish, cluster, every_size=False)))


def plans_by_size(wish: Wish, cluster: Cluster) -> list[PlacementPlan]:
    """The best placement on each number of nodes on which there is one. Raises Refusal."""
    return _plans(wish, cluster, every_size=True)


def _plans(wish: Wish, cluster: Cluster, *, every_size: bool) -> list[PlacementPlan]:
    usable = eligible(wish, cluster)
    search = Search(wish, cluster, usable.nodes)
    found: list[PlacementPlan] = []
    refused = _never(wish)
    for size in () if refused is not None else search.sizes:
        if (ring := search.best(size)) is not None:
            found.append(_plan(wish, search.room, ring))
            if not every_size:
                break
    if found:
        return found
    if usable.unread:
        raise InfoPending(len(cluster.nodes), wish.least, usable.unread)
    raise _refusal(wish, search, usable.dropped, refused) or _no_rdma(cluster, usable, search)


def _never(wish: Wish) -> Refusal | None:
    """A reason that holds on any cluster; said only when memory is no reason."""
    if wish.sharding == "Tensor" and not wish.card.supports_tensor:
        return TensorUnsupported(wish.card.model_id)
    if wish.sharding == "Pipeline" and wish.card.model_id in _NO_PIPELINE:
        return PipelineUnsupported(wish.card.model_id)
    return None


def _plan(wish: Wish, room: Room, ring: Sequence[PlacementCandidate]) -> PlacementPlan:
    """One rank shares nothing: it is a pipeline of one, whatever was asked for."""
    card, alone = wish.card, len(ring) == 1
    tensor = wish.sharding == "Tensor" and not alone
    ranks: list[PlannedRank] = []
    start = 0
    for node, count in zip(ring, room.layers(ring) or (), strict=True):
        part, need = room.piece(1, len(ring)) if tensor else room.piece(count, card.n_layers)
        first = 0 if tensor else start
        budget = room.budget(node.node_id)
        ranks.append(PlannedRank(node, first, first + count, part, need, budget))
        start += count
    # Many ranks are alike, and fractions are slow to compare.
    alike = {
        (rank.end_layer - rank.start_layer, rank.budget, rank.node.dequantize): Holder(
            rank.part, rank.budget, rank.node.dequantize
        )
        for rank in ranks
    }
    weights = plan_weights(card, wish.shape, list(alike.values()))
    return PlacementPlan(
        wish=wish,
        sharding="Tensor" if tensor else "Pipeline",
        meta="MlxRing" if alone else wish.meta,
        ranks=tuple(_unpacked(wish, ranks) if weights.unpacked else ranks),
        context_tokens=weights.context_tokens,
        unpacked=weights.unpacked,
    )


def _unpacked(wish: Wish, ranks: Sequence[PlannedRank]) -> list[PlannedRank]:
    return [
        replace(rank, need=planned_need(wish.card, rank.part, wish.shape, unpacked=True))
        for rank in ranks
    ]


def _refusal(
    wish: Wish, search: Search, dropped: Sequence[Dropped], never: Refusal | None
) -> Refusal | None:
    """None when nothing but the RDMA links is missing."""
    card = wish.card
    if not search.fits_somewhere():
        if search.waits_for_links():
            return InfoPending(len(search.nodes), wish.least + 1)
        if wish.least > card.n_layers:
            return TooFewLayers(card.model_id, card.n_layers, wish.least)
        rejected = [_rejected(wish, search.room, ring) for ring in search.nearest(_MOST_REASONS)]
        return DoesNotFit(card.model_id, card.storage_size.in_bytes, rejected, dropped)
    if never is not None:
        return never
    sizes = [size for size in search.sizes if size > 1]
    if wish.sharding == "Tensor" and not any(search.room.divides(size) for size in sizes):
        return NotDivisible(card.model_id, sizes, tensor_obstacles(card, wish.shape, sizes[0]))
    return None


def _no_rdma(cluster: Cluster, usable: Eligible, search: Search) -> Refusal:
    nodes = sorted(node.node_id for node in usable.nodes)
    gaps = find_gaps(nodes, cluster.rdma, cluster.os_versions, cluster.links)
    if (joined := search.widest_rdma()) is not None:
        gaps.insert(0, too_small([node.node_id for node in joined]))
    return NoRdma(max(2, search.sizes.start), gaps, usable.dropped)


def _rejected(wish: Wish, room: Room, ring: Sequence[PlacementCandidate]) -> RejectedCycle:
    """Those nodes of a set that are too small for the share they would get."""
    # In proportion a set may fit while a whole layer too many is left for one of its nodes.
    short = _too_small(room, ring, room.parts(ring)) or _too_small(
        room, ring, room.layer_parts(ring)
    )
    return RejectedCycle(tuple(node.node_id for node in ring), wish.sharding, tuple(short))


def _too_small(
    room: Room, ring: Sequence[PlacementCandidate], parts: Sequence[Fraction]
) -> list[ShortNode]:
    found = []
    for node, part in zip(ring, parts, strict=True):
        need, budget = room.need(part), room.budget(node.node_id)
        if need.total_bytes >= budget.usable_bytes:
            found.append(ShortNode(node.node_id, need, budget.usable_bytes, budget.pool))
    return found
