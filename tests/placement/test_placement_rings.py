"""Rings among few nodes are found if there are any, and the best one of each set is taken."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.placement.candidates import Cluster
from skulkd.placement.eligible import has_ring
from skulkd.placement.exact_rings import MOST_NODES, exact_rings
from skulkd.placement.links import NO_LINK
from skulkd.placement.planner import plan
from skulkd.placement.rings import cliques, ring_cost, sparse_rings
from skulkd.placement.wish import Wish
from tests.placement.builders import a_card, a_node, linked

SIZE = 6
PAIRS = list(combinations(range(SIZE), 2))
graphs = st.lists(st.sampled_from([0, 2, 5, NO_LINK, NO_LINK]), min_size=15, max_size=15)
# A triangle and a node at one of its corners: a walk that begins there is never closed.
FORKED = [(0, 1), (0, 2), (0, 3), (2, 3)]


def brute_force(kinds: dict[tuple[int, int], int]) -> dict[frozenset[int], int]:
    """By set of at least three: what its best ring costs."""

    def kind(one: int, other: int) -> int:
        return kinds[min(one, other), max(one, other)]

    found: dict[frozenset[int], int] = {}
    for size in range(3, SIZE + 1):
        for members in combinations(range(SIZE), size):
            for order in permutations(members[1:]):
                ring = (members[0], *order)
                if all(kind(one, ring[i - 1]) < NO_LINK for i, one in enumerate(ring)):
                    cost = ring_cost(ring, kind)
                    key = frozenset(members)
                    found[key] = min(cost, found.get(key, cost))
    return found


@given(graphs)
def test_every_set_that_has_a_ring_is_found_with_its_best_one(drawn: list[int]) -> None:
    kinds = dict(zip(PAIRS, drawn, strict=True))

    def kind(one: int, other: int) -> int:
        return kinds[min(one, other), max(one, other)]

    rings = [ring for ring in exact_rings(range(SIZE), kind) if len(ring) > 2]
    costs = {frozenset(ring): ring_cost(ring, kind) for ring in rings}
    assert len(costs) == len(rings), "each set once"
    assert costs == brute_force(kinds)


def cluster_of(edges: list[tuple[int, int]], size: int) -> Cluster:
    nodes = [a_node(f"n{index}", 16) for index in range(size)]
    return linked(nodes, [(f"n{one}", f"n{other}", 2) for one, other in edges])


def test_a_ring_that_a_walk_misses_is_planned() -> None:
    cluster = cluster_of(FORKED, 4)

    def is_linked(one: int, other: int) -> bool:
        return (one, other) in FORKED or (other, one) in FORKED

    assert all(len(ring) < 3 for ring in sparse_rings(range(4), is_linked)), "a harder graph"
    found = plan(Wish(a_card(1), min_nodes=3), cluster)
    assert set(found.node_ids) == {"n0", "n2", "n3"}
    assert has_ring(cluster, cluster.nodes, 3)


def test_a_ring_is_planned_whose_nodes_alone_have_the_memory() -> None:
    """Of all triangles only one is large enough; the preferred nodes are in others."""
    nodes = [a_node(f"n{index}", 64 if index in (1, 4, 6) else 16) for index in range(7)]
    edges = [*((i, (i + 1) % 7) for i in range(7)), (1, 4), (4, 6), (6, 1), (0, 2), (3, 5)]
    cluster = linked(nodes, [(f"n{one}", f"n{other}", 2) for one, other in edges])
    found = plan(Wish(a_card(100), min_nodes=3), cluster)
    assert set(found.node_ids) == {"n1", "n4", "n6"}


@pytest.mark.parametrize("size", [MOST_NODES, MOST_NODES + 1])
def test_few_nodes_and_many_find_the_same_plain_ring(size: int) -> None:
    edges = [(index, (index + 1) % size) for index in range(size)]
    found = plan(Wish(a_card(1), min_nodes=size), cluster_of(edges, size))
    assert len(found.ranks) == size


@given(st.sets(st.sampled_from(PAIRS)))
def test_every_set_in_which_all_are_cabled_is_found_once(cables: set[tuple[int, int]]) -> None:
    found = [
        frozenset(one)
        for one in cliques(range(SIZE), lambda a, b: (min(a, b), max(a, b)) in cables)
    ]
    expected = {
        frozenset(members)
        for size in range(1, SIZE + 1)
        for members in combinations(range(SIZE), size)
        if all(pair in cables for pair in combinations(members, 2))
    }
    assert set(found) == expected
    assert len(found) == len(expected)


def test_more_links_than_a_mac_has_ports_do_not_make_it_slow() -> None:
    found = list(cliques(range(40), lambda one, other: one != other))
    assert max(map(len, found)) == 40
    assert len(found) <= 40 * 40
