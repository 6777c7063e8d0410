"""Sets of nodes that can form a group: rings for TCP, cliques for RDMA. Pure, polynomial.

No cycle is enumerated: there are 11 million of them in eleven fully meshed machines. In a full
mesh the best nodes are the best ring. Among few nodes the best ring of every set is worked out
exactly (`exact_rings.py`). Among many, in a sparse graph, a path is grown from each node along
the best neighbours and closed where it can be; sets are bit masks, so one step is one machine
word or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from skulkd.placement.links import NO_LINK

T = TypeVar("T")
Kind = Callable[[T, T], int]

_MAX_SEEDS = 16
_ROUNDS = 4
_FEW = 12
_MANY = 32
_MOST_PORTS = 7
# One link of a worse kind outweighs any number of a better one.
COSTS = [*(65**kind for kind in range(NO_LINK)), 65 ** (NO_LINK + 2)]


def is_mesh(nodes: Sequence[T], linked: Callable[[T, T], bool]) -> bool:
    """Whether every pair is linked: then any of the nodes are a ring in any order."""
    return all(linked(one, other) for i, one in enumerate(nodes) for other in nodes[i + 1 :])


def sparse_rings(nodes: Sequence[T], linked: Callable[[T, T], bool]) -> Iterator[tuple[T, ...]]:
    """Every single node, every pair, and the larger rings that a walk from each node finds.

    The input is in order of preference.
    """
    masks = _masks(nodes, linked)
    for node in nodes:
        yield (node,)
    for one, mask in enumerate(masks):
        for further in _bits(mask >> one):
            yield nodes[one], nodes[one + further]
    for seed in range(min(len(nodes), _MAX_SEEDS)):
        for ring in _walk(masks, seed):
            yield tuple(nodes[index] for index in ring)


def cliques(nodes: Sequence[T], linked: Callable[[T, T], bool]) -> Iterator[tuple[T, ...]]:
    """Sets in which every pair is linked: all of them, for a Mac has few ports.

    Where a node has more links than any Mac, sets are grown from each node by the best that fits.
    """
    masks = _masks(nodes, linked)
    if max((mask.bit_count() for mask in masks), default=0) <= _MOST_PORTS:
        for found in _all_cliques(masks, (), (1 << len(nodes)) - 1):
            yield tuple(nodes[index] for index in found)
        return
    for seed, mask in enumerate(masks):
        members, open_to = [seed], mask
        yield (nodes[seed],)
        while open_to:
            best = _lowest(open_to)
            members.append(best)
            open_to &= masks[best]
            yield tuple(nodes[index] for index in members)


def _all_cliques(
    masks: Sequence[int], members: tuple[int, ...], open_to: int
) -> Iterator[tuple[int, ...]]:
    """Each set once, its members in ascending order."""
    for index in _bits(open_to):
        grown = (*members, index)
        yield grown
        yield from _all_cliques(masks, grown, open_to & masks[index] & -(1 << index))


def along_best_links(ring: Sequence[T], kind: Kind[T]) -> tuple[T, ...]:
    """The same nodes, ordered so that neighbours have the best links.

    The worst link of all closes the ring: only tokens go back, activations go forward.
    """
    if len(ring) <= 2:
        return tuple(ring)
    size = len(ring)
    cost = [[0 if one is other else COSTS[kind(one, other)] for other in ring] for one in ring]
    order = list(range(size))
    if _varies(cost):
        # Few nodes are tried from several sides; with many one side is close enough.
        starts = range(_ROUNDS if size <= _FEW else 1)
        started = [order, *(_nearest_first(cost, start) for start in starts if start < size)]
        if size <= _MANY:
            started = [_without_crossings(cost, path) for path in started]
        order = min(started, key=_length(cost))
    closing = max(range(size), key=lambda i: (cost[order[i]][order[(i + 1) % size]], i))
    turned = order[closing + 1 :] + order[: closing + 1]
    return tuple(ring[index] for index in turned)


def ring_cost(ring: Sequence[T], kind: Kind[T]) -> int:
    """Lower is better; a ring of one node costs nothing."""
    if len(ring) < 2:
        return 0
    return sum(COSTS[kind(one, ring[(i + 1) % len(ring)])] for i, one in enumerate(ring))


def _masks(nodes: Sequence[T], linked: Callable[[T, T], bool]) -> list[int]:
    masks = [0] * len(nodes)
    for i, one in enumerate(nodes):
        for j in range(i + 1, len(nodes)):
            if linked(one, nodes[j]):
                masks[i] |= 1 << j
                masks[j] |= 1 << i
    return masks


def _walk(masks: Sequence[int], seed: int) -> Iterator[list[int]]:
    """Closed rings met while a path grows from `seed` at both ends."""
    path, seen = [seed], 1 << seed
    while True:
        if onward := masks[path[-1]] & ~seen:
            step = _lowest(onward)
            path.append(step)
        elif onward := masks[path[0]] & ~seen:
            step = _lowest(onward)
            path.insert(0, step)
        else:
            turned = _turned(masks, path, seen)
            if turned is None:
                return
            path = turned
            continue
        seen |= 1 << step
        if len(path) > 2 and (ring := _closed(masks, path)) is not None:
            yield ring


def _turned(masks: Sequence[int], path: list[int], seen: int) -> list[int] | None:
    """The same path with another end, from which it goes on."""
    for index in range(len(path) - 2):
        if masks[path[-1]] >> path[index] & 1 and masks[path[index + 1]] & ~seen:
            return path[: index + 1] + path[:index:-1]
    return None


def _closed(masks: Sequence[int], path: list[int]) -> list[int] | None:
    """The path as a ring, turned in the middle if its ends do not meet."""
    head, tail = path[0], path[-1]
    if masks[head] >> tail & 1:
        return list(path)
    for index in range(1, len(path) - 2):
        if masks[tail] >> path[index] & 1 and masks[head] >> path[index + 1] & 1:
            return path[: index + 1] + path[:index:-1]
    return None


def _varies(cost: Sequence[Sequence[int]]) -> bool:
    usual = cost[0][1]
    return any(value not in (0, usual) for row in cost for value in row)


def _nearest_first(cost: Sequence[Sequence[int]], start: int) -> list[int]:
    order, left = [start], set(range(len(cost))) - {start}
    while left:
        row = cost[order[-1]]
        nearest = min(left, key=lambda index: (row[index], index))
        order.append(nearest)
        left.remove(nearest)
    return order


def _length(cost: Sequence[Sequence[int]]) -> Callable[[Sequence[int]], int]:
    def length(order: Sequence[int]) -> int:
        return sum(cost[one][order[i - 1]] for i, one in enumerate(order))

    return length


def _without_crossings(cost: Sequence[Sequence[int]], order: list[int]) -> list[int]:
    """Two links are exchanged for better ones until that no longer helps, a few rounds."""
    size = len(order)
    for _ in range(_ROUNDS if size <= _FEW else 1):
        better = False
        for i in range(size - 1):
            for j in range(i + 2, size if i else size - 1):
                a, b, c, d = order[i], order[i + 1], order[j], order[(j + 1) % size]
                if cost[a][c] + cost[b][d] < cost[a][b] + cost[c][d]:
                    order[i + 1 : j + 1] = reversed(order[i + 1 : j + 1])
                    better = True
        if not better:
            break
    return order


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield _lowest(mask)
        mask &= mask - 1
