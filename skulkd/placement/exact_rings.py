"""The best ring of every set of a few nodes, exactly: Held and Karp's dynamic programme. Pure.

Steps double with every node, so it is for few of them; a walk through the graph (`rings.py`) may
miss rings, and in small clusters every one counts. What is kept for a set of nodes and a last one
among them is the cheapest path from the set's first node to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from skulkd.placement.links import NO_LINK
from skulkd.placement.rings import COSTS, Kind

T = TypeVar("T")
MOST_NODES = 9
"""A few milliseconds."""

Paths = dict[int, dict[int, tuple[int, int]]]
"""By set and last node: what the path costs, and the node before the last."""


def exact_rings(nodes: Sequence[T], kind: Kind[T]) -> Iterator[tuple[T, ...]]:
    """Every node, every linked pair, and of every larger set that has a ring the best one."""
    cost = [
        [COSTS[found] if (found := _kind(kind, one, other)) < NO_LINK else None for other in nodes]
        for one in nodes
    ]
    for first in range(len(nodes)):
        yield (nodes[first],)
        paths = _paths(cost, first)
        for members, ends in paths.items():
            ring = _closed(cost, first, paths, members, ends)
            if ring is not None:
                yield tuple(nodes[index] for index in ring)


def _kind(kind: Kind[T], one: T, other: T) -> int:
    return NO_LINK if one is other else kind(one, other)


def _paths(cost: Sequence[Sequence[int | None]], first: int) -> Paths:
    """The cheapest paths from `first` through nodes after it; smaller sets come first."""
    paths: Paths = {1 << first: {first: (0, first)}}
    size = len(cost)
    for rest in range(1 << (size - first - 1)):
        members = (rest << (first + 1)) | (1 << first)
        for last, (spent, _) in paths.get(members, {}).items():
            for after in range(first + 1, size):
                step = cost[last][after]
                if step is None or members >> after & 1:
                    continue
                longer = paths.setdefault(members | 1 << after, {})
                if after not in longer or spent + step < longer[after][0]:
                    longer[after] = (spent + step, last)
    return paths


def _closed(
    cost: Sequence[Sequence[int | None]],
    first: int,
    paths: Paths,
    members: int,
    ends: dict[int, tuple[int, int]],
) -> list[int] | None:
    """The cheapest way through all members and back; None when there is none."""
    back = [
        (spent + step, last)
        for last, (spent, _) in ends.items()
        if last != first and (step := cost[last][first]) is not None
    ]
    if not back:
        return None
    _, last = min(back)
    ring = [last]
    while last != first:
        before = paths[members][last][1]
        members &= ~(1 << last)
        last = before
        ring.append(last)
    return ring[::-1]
