"""The nearest plan that would work, when the one that was asked for does not. Pure.

Tried in the order in which an operator would rather have them: the same model another way, then
one more machine, an instance less, and last a smaller copy of the same model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from skulkd.placement.candidates import Cluster, PlacementCandidate
from skulkd.placement.links import Links
from skulkd.placement.planner import PlacementPlan, plan
from skulkd.placement.promises import loaded_part, shares_of
from skulkd.placement.refusals import DoesNotFit, Refusal, gib
from skulkd.placement.wish import Wish
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.placement import Sharding
from skulkd.wire.state import State

_MOST_NEW_NODES = 32
_MOST_DELETES = 16


@dataclass(frozen=True, slots=True)
class Alternative:
    """Something that would work: its kind for programs, and words that end in a command."""

    kind: str
    text: str


def alternatives(
    refusal: Refusal,
    wish: Wish,
    cluster: Cluster,
    state: State,
    smaller: Sequence[ModelCard] = (),
) -> list[Alternative]:
    """What would work instead, at most one of each kind; empty when nothing simple helps."""
    found = list(_another_way(wish, cluster))
    if refusal.kind == DoesNotFit.__name__:
        found += [
            *_more_nodes(wish, cluster),
            *_one_instance_less(wish, cluster, state),
            *_smaller_copy(wish, cluster, smaller),
        ]
    return list({alternative.kind: alternative for alternative in reversed(found)}.values())[::-1]


def _another_way(wish: Wish, cluster: Cluster) -> Iterator[Alternative]:
    other: Sharding = "Tensor" if wish.sharding == "Pipeline" else "Pipeline"
    changes: list[tuple[str, Wish, str]] = [
        ("sharding", replace(wish, sharding=other), f" --sharding {other}"),
        ("meta", replace(wish, meta="MlxRing"), " --instance-meta MlxRing"),
        ("minNodes", replace(wish, min_nodes=1), ""),
        ("exclusions", replace(wish, excluded=frozenset(), only=frozenset()), ""),
    ]
    for kind, changed, flags in changes:
        if changed == wish or (found := _tried(changed, cluster)) is None:
            continue
        count = len(found.ranks)
        nodes = f" --min-nodes {count}" if count > 1 else ""
        left_out = "".join(f" --exclude {node}" for node in sorted(changed.excluded))
        command = f"skulkctl place {wish.card.model_id}{flags}{nodes}{left_out} --dry-run"
        yield Alternative(
            kind, f"{_WAYS[kind].format(nodes=_nodes(count), other=other)}: {command}"
        )


_WAYS = {
    "sharding": "{other} sharding would fit on {nodes}",
    "meta": "over TCP it would fit on {nodes}",
    "minNodes": "{nodes} would do",
    "exclusions": "without leaving nodes out it would fit on {nodes}",
}


def _more_nodes(wish: Wish, cluster: Cluster) -> Iterator[Alternative]:
    """How many machines like the roomiest would have to join."""
    known = [node for node in cluster.nodes if node.budget is not None]
    if not known:
        return
    best = max(known, key=_usable)
    wish = replace(wish, only=frozenset(), meta="MlxRing")
    counts = range(1, _MOST_NEW_NODES + 1)
    # More machines never hurt, so the first count that works is found by halving.
    first = bisect_left(
        counts, True, key=lambda count: _tried(wish, _joined(cluster, best, count)) is not None
    )
    if first < len(counts):
        count = counts[first]
        plural = "node" if count == 1 else "nodes"
        yield Alternative(
            "moreNodes",
            f"{count} more {plural} with {gib(_usable(best))} usable would be enough:"
            " skulkctl nodes",
        )


def _joined(cluster: Cluster, like: PlacementCandidate, count: int) -> Cluster:
    """The cluster with so many more machines of a kind, everybody linked to everybody."""
    guests = [
        replace(
            like,
            node_id=NodeId(f"{like.node_id}+{index}"),
            draining=False,
            files_problem=None,
            participation="full",
        )
        for index in range(count)
    ]
    nodes = (*cluster.nodes, *guests)
    ids = [node.node_id for node in nodes]
    ring = {(one, other): (2, "") for one in ids for other in ids if one != other}
    return Cluster(nodes, Links(ring=ring))


def _one_instance_less(wish: Wish, cluster: Cluster, state: State) -> Iterator[Alternative]:
    """The smallest instance whose memory is missing."""
    sized = sorted(state.instances.values(), key=_size)[:_MOST_DELETES]
    for instance in sized:
        if _tried(wish, _without(cluster, state, instance)) is not None:
            assignments = instance.shard_assignments
            yield Alternative(
                "delete",
                f"free memory: skulkctl delete {instance.instance_id[:8]}"
                f"   ({assignments.model_id}, {gib(_size(instance))})",
            )
            return


def _smaller_copy(
    wish: Wish, cluster: Cluster, smaller: Sequence[ModelCard]
) -> Iterator[Alternative]:
    for card in smaller:
        if _tried(Wish(card, excluded=wish.excluded, only=wish.only), cluster) is not None:
            size = gib(card.storage_size.in_bytes)
            yield Alternative(
                "smaller", f"a smaller copy of it ({size}): skulkctl place {card.model_id}"
            )
            return


def _without(cluster: Cluster, state: State, instance: Instance) -> Cluster:
    """The cluster when an instance has gone and its memory is back."""
    nodes = {node.node_id: node for node in cluster.nodes}
    for node_id, need, runner_id in shares_of(instance):
        if (node := nodes.get(node_id)) is None:
            continue
        taken = int(need * loaded_part(state.runners.get(runner_id)))
        nodes[node_id] = _freed(node, taken, need - taken)
    return Cluster(tuple(nodes.values()), cluster.links)


def _freed(node: PlacementCandidate, taken: int, promised: int) -> PlacementCandidate:
    memory = node.memory
    if memory is not None:
        free = min(memory.ram_available.in_bytes + taken, memory.ram_total.in_bytes)
        memory = memory.model_copy(update={"ram_available": Memory.of(free)})
    return replace(node, memory=memory, promised_bytes=max(0, node.promised_bytes - promised))


def _tried(wish: Wish, cluster: Cluster) -> PlacementPlan | None:
    try:
        return plan(wish, cluster)
    except Refusal:
        return None


def _usable(node: PlacementCandidate) -> int:
    return 0 if node.budget is None else node.budget.usable_bytes


def _size(instance: Instance) -> int:
    return sum(need for _, need, _ in shares_of(instance))


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
