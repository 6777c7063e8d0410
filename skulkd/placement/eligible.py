"""Which nodes may be used at all, and the real reason for each that may not. Pure.

The order is the reference's: known nodes, exclusions, then what a node is and has. A refusal
carries every node that was left out on the way, because the last reason alone misleads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skulkd.placement.candidates import Cluster, PlacementCandidate
from skulkd.placement.exact_rings import MOST_NODES, exact_rings
from skulkd.placement.links import NO_LINK
from skulkd.placement.refusals import (
    AllDraining,
    AllExcluded,
    Dropped,
    Ineligible,
    InfoPending,
    NoFiles,
    NotServed,
    RequiredMissing,
    SingleNodeOnly,
    TooFewNodes,
    UnknownNode,
)
from skulkd.placement.rings import is_mesh, sparse_rings
from skulkd.placement.wish import Wish
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import NodeId

# Of a node that has not told its backends: every runner here computes with MLX.
_OWN_BACKENDS = frozenset({"mlx"})
_SERVED = frozenset({"TextGeneration", "TextEmbedding"})
_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Eligible:
    """Nodes whose memory is known, those whose memory is not, and those that were left out."""

    nodes: tuple[PlacementCandidate, ...]
    unread: tuple[NodeId, ...]
    dropped: tuple[Dropped, ...]


def eligible(wish: Wish, cluster: Cluster) -> Eligible:
    """The nodes that may be used, at least as many as were asked for. Raises Refusal."""
    _check_known(wish, cluster)
    sieve = _Sieve(cluster.nodes, wish.least)
    sieve.drop(lambda node: _ruled_out(wish, node))
    if sieve.exhausted or not has_ring(cluster, sieve.left, wish.least):
        if not sieve.exhausted and _links_are_coming(cluster, sieve.left):
            raise InfoPending(len(sieve.left), wish.least)
        raise AllExcluded(wish.least, sorted(wish.excluded), sieve.dropped)
    sieve.drop(lambda node: "is draining" if node.draining else None)
    if sieve.exhausted:
        raise AllDraining(wish.least, sieve.dropped)
    sieve.drop(lambda node: why_ineligible(wish.card, node))
    if sieve.exhausted:
        raise Ineligible(wish.card.placement.compatible_backends, sieve.dropped)
    if wish.single_node_only and wish.least > 1:
        raise SingleNodeOnly(wish.card.model_id, wish.least)
    if _SERVED.isdisjoint(wish.card.tasks):
        raise NotServed(wish.card.model_id, wish.card.tasks)
    sieve.drop(lambda node: "has no files" if node.files_problem is not None else None)
    if sieve.exhausted:
        raise NoFiles(wish.card.model_id, _files_problem(cluster, wish), sieve.dropped)
    if not wish.required <= {node.node_id for node in sieve.left}:
        raise RequiredMissing(sorted(wish.required), sieve.dropped)
    known = tuple(node for node in sieve.left if node.budget is not None)
    unread = tuple(node.node_id for node in sieve.left if node.budget is None)
    return Eligible(known, unread, tuple(sieve.dropped))


def has_ring(cluster: Cluster, nodes: Sequence[PlacementCandidate], size: int) -> bool:
    """Whether so many of the nodes, or more, are connected in a ring."""
    if len(nodes) < size:
        return False
    if size <= 1:
        return True
    ids = [node.node_id for node in nodes]

    def linked(one: NodeId, other: NodeId) -> bool:
        return cluster.links.kind(one, other) < NO_LINK

    if is_mesh(ids, linked):
        return True
    few = len(ids) <= MOST_NODES
    found = exact_rings(ids, cluster.links.kind) if few else sparse_rings(ids, linked)
    return any(len(ring) >= size for ring in found)


def node_backends(node: PlacementCandidate) -> frozenset[str]:
    return _OWN_BACKENDS if node.backends is None else node.backends


def why_ineligible(card: ModelCard, node: PlacementCandidate) -> str | None:
    """None when the node takes part and can compute the model."""
    if node.participation != "full":
        return f"only takes part as {node.participation}"
    if not node_backends(node) & set(card.placement.compatible_backends):
        return f"has only {', '.join(sorted(node_backends(node))) or 'no backend'}"
    least_gib, budget = card.placement.min_vram_gib, node.budget
    if least_gib is not None and budget is not None and budget.ceiling_bytes < least_gib * _GIB:
        has = f"{budget.ceiling_bytes / _GIB:.1f} GiB"
        return f"has {has} for models, the card wants {least_gib:g} GiB"
    return None


def _check_known(wish: Wish, cluster: Cluster) -> None:
    known = cluster.node_ids
    if len(known) < wish.least:
        raise TooFewNodes(len(known), wish.least)
    if missing := (wish.required | wish.only) - known:
        raise UnknownNode(sorted(missing))
    if not has_ring(cluster, cluster.nodes, wish.least):
        raise InfoPending(len(known), wish.least)


def _links_are_coming(cluster: Cluster, nodes: Sequence[PlacementCandidate]) -> bool:
    """Whether a node has just appeared: it has no link yet, or one in one direction only."""
    links, everyone = cluster.links, cluster.node_ids
    for node in nodes:
        others = everyone - {node.node_id}
        if not any(links.kind(node.node_id, other) < NO_LINK for other in others):
            return True
        if any(links.is_one_way(node.node_id, other.node_id) for other in nodes):
            return True
    return False


def _ruled_out(wish: Wish, node: PlacementCandidate) -> str | None:
    if node.node_id in wish.excluded:
        return "is excluded"
    if wish.only and node.node_id not in wish.only:
        return "is not among the nodes that were named"
    return None


def _files_problem(cluster: Cluster, wish: Wish) -> str:
    problems = sorted({node.files_problem for node in cluster.nodes if node.files_problem})
    return problems[0] if problems else f"{wish.card.model_id} has no files"


class _Sieve:
    """Nodes that are left, after each reason."""

    def __init__(self, nodes: Sequence[PlacementCandidate], least: int) -> None:
        self.left = list(nodes)
        self.dropped: list[Dropped] = []
        self._least = least

    @property
    def exhausted(self) -> bool:
        return len(self.left) < self._least

    def drop(self, reason_of: Callable[[PlacementCandidate], str | None]) -> None:
        kept = []
        for node in self.left:
            reason = reason_of(node)
            if reason is None:
                kept.append(node)
            else:
                self.dropped.append(Dropped(node.node_id, reason))
        self.left = kept
