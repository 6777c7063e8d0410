"""The best set of nodes of each size: by links, then staged files, then free memory. Pure.

Links are taken grade by grade: first only the best kind, then the next, so the first set that
fits has the best worst link. In a full mesh of a grade the preferred nodes are the answer, and
only if they have too little memory are they exchanged, one by one, for roomier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skulkd.placement.candidates import Cluster, PlacementCandidate
from skulkd.placement.eligible import node_backends
from skulkd.placement.exact_rings import MOST_NODES, exact_rings
from skulkd.placement.links import NO_LINK
from skulkd.placement.rings import along_best_links, cliques, is_mesh, ring_cost, sparse_rings
from skulkd.placement.room import Room
from skulkd.placement.wish import Wish
from skulkd.wire.ids import NodeId

Ring = tuple[PlacementCandidate, ...]
Kinds = dict[NodeId, dict[NodeId, int]]
# Free memory is compared in steps, so that two equal machines do not change places all the time.
_STEP_BYTES = 256 * 1024**2
# More ranks MLX does not join all to all.
_MOST_RDMA_RANKS = 8


class Search:
    """What can be worked out once for every number of nodes."""

    def __init__(self, wish: Wish, cluster: Cluster, nodes: Sequence[PlacementCandidate]) -> None:
        self._wish = wish
        self._cluster = cluster
        self.room = Room(wish, nodes)
        self._kinds = _kinds(cluster, nodes)
        self._rdma: dict[int, list[Ring]] | None = None
        self._is_mesh = all(
            kind < NO_LINK or one == other
            for one, row in self._kinds.items()
            for other, kind in row.items()
        )
        self.nodes = sorted(nodes, key=self._preference)
        self._roomiest = sorted(nodes, key=self._roominess)
        self._grades = self._graded()
        self._exact = self._worked_out()
        last = 1 if wish.single_node_only else min(len(nodes), wish.card.n_layers)
        self.sizes = range(wish.least, last + 1)

    def best(self, size: int) -> Ring | None:
        """The best set of exactly so many nodes, in rank order."""
        if not self.room.divides(size):
            return None
        if size > 1 and self._wish.meta == "MlxJaccl":
            return self._best_of(self._rdma_sets(size))
        return self._best_linked(size)

    def fits_somewhere(self) -> bool:
        """Whether memory alone would allow it, whatever else speaks against it."""
        return any(self._best_linked(size) is not None for size in self.sizes)

    def widest_rdma(self) -> Ring | None:
        """The most nodes that RDMA joins, as many as asked for, whether the model fits or not."""
        sizes = [size for size in self.sizes if size > 1]
        sets = (ring for size in reversed(sizes) for ring in self._rdma_sets(size))
        return next(sets, None)

    def waits_for_links(self) -> bool:
        """Whether it would fit if nodes that no link has been measured to were linked."""
        isolated = [node for node in self.nodes if not self._neighbours(node)]
        if len(self.nodes) < 2 or not isolated or self._wish.single_node_only:
            return False
        widest = min(len(self.nodes), self._wish.card.n_layers)
        sizes = range(max(2, self._wish.least), widest + 1)
        return any(self.room.layers(self._roomiest[:size]) is not None for size in sizes)

    def nearest(self, most: int) -> list[Ring]:
        """Sets to explain a refusal with: the roomiest nodes alone, and the widest ring."""
        alone: list[Ring] = [(node,) for node in self._roomiest[:most]]
        singles = alone if self._wish.least == 1 else []
        for size in reversed(self.sizes):
            for grade in reversed(self._grades):
                if size > 1 and (ring := grade.example(size)) is not None:
                    return [*singles, ring]
        return singles or [tuple(self._roomiest[: self._wish.least])]

    def _best_linked(self, size: int) -> Ring | None:
        if self._exact is not None:
            return self._best_of(iter(self._exact.get(size, ())))
        for grade in self._grades:
            if (ring := self._best_of(grade.sets(size))) is not None:
                return ring
        return None

    def _best_of(self, sets: Iterator[Ring]) -> Ring | None:
        wanted = self._wish.required
        fitting = [
            ring
            for ring in sets
            if (not wanted or wanted <= {node.node_id for node in ring})
            and self.room.layers(ring) is not None
        ]
        return min((self._ordered(ring) for ring in fitting), key=self._rating, default=None)

    def _rdma_sets(self, size: int) -> Iterator[Ring]:
        if self._rdma is None:
            self._rdma = {}
            for ring in self._rdma_rings():
                self._rdma.setdefault(len(ring), []).append(ring)
        yield from self._rdma.get(size, ())

    def _rdma_rings(self) -> Iterator[Ring]:
        links = self._cluster.links

        def linked(one: PlacementCandidate, other: PlacementCandidate) -> bool:
            return links.has_rdma(one.node_id, other.node_id)

        for clique in cliques(self.nodes, linked) if links.rdma else ():
            if 1 < len(clique) <= _MOST_RDMA_RANKS and (led := self._led(clique)) is not None:
                yield led

    def _led(self, clique: Ring) -> Ring | None:
        """With a first rank that every other one can dial; None when there is none."""
        ordered = sorted(clique, key=lambda node: node.node_id)
        dialled = self._cluster.links.coordinator
        for leader in ordered:
            others = [node for node in ordered if node is not leader]
            if all((node.node_id, leader.node_id) in dialled for node in others):
                return (leader, *others)
        return None

    def _ordered(self, ring: Ring) -> Ring:
        if self._wish.meta == "MlxJaccl":
            return ring
        by_id = tuple(sorted(ring, key=lambda node: node.node_id))
        if len(ring) < 3 or (self._is_mesh and len(self._grades) == 1):
            return by_id
        given = by_id if self._is_mesh and self._exact is None else ring
        return along_best_links(given, self._kind)

    def _rating(self, ring: Ring) -> tuple[object, ...]:
        free = sum(self.room.usable(node.node_id) for node in ring) // _STEP_BYTES
        return (
            ring_cost(ring, self._kind) if self._wish.meta == "MlxRing" else 0,
            -self._backend_score(ring),
            -sum(node.staged for node in ring),
            not any(node.node_id in self._cluster.leaves for node in ring),
            -free,
            [node.node_id for node in ring],
        )

    def _backend_score(self, ring: Sequence[PlacementCandidate]) -> int:
        preferred = self._wish.card.placement.backend_preference
        for index, tag in enumerate(preferred):
            if all(tag in node_backends(node) for node in ring):
                return len(preferred) - index
        return 0

    def _preference(self, node: PlacementCandidate) -> tuple[object, ...]:
        return (
            node.node_id not in self._wish.required,
            -self._backend_score([node]),
            -node.staged,
            -(self.room.usable(node.node_id) // _STEP_BYTES),
            node.node_id,
        )

    def _roominess(self, node: PlacementCandidate) -> tuple[object, ...]:
        needed = node.node_id in self._wish.required
        return (not needed, -self.room.usable(node.node_id), node.node_id)

    def _kind(self, one: PlacementCandidate, other: PlacementCandidate) -> int:
        return self._kinds[one.node_id][other.node_id]

    def _neighbours(self, node: PlacementCandidate) -> bool:
        row = self._kinds[node.node_id]
        return any(kind < NO_LINK for other, kind in row.items() if other != node.node_id)

    def _graded(self) -> list[_Grade]:
        present = {kind for row in self._kinds.values() for kind in row.values()} - {NO_LINK}
        return [_Grade(self, kind) for kind in sorted(present) or [NO_LINK - 1]]

    def _worked_out(self) -> dict[int, list[Ring]] | None:
        """Every set that has a ring, by size, when links differ and the nodes are few."""
        alike = self._is_mesh and len(self._grades) == 1
        if alike or len(self.nodes) > MOST_NODES:
            return None
        found: dict[int, list[Ring]] = {}
        by_id = sorted(self.nodes, key=lambda node: node.node_id)
        for ring in exact_rings(by_id, self._kind):
            found.setdefault(len(ring), []).append(ring)
        return found

    def linked_within(self, kind: int) -> _Linked:
        return _Linked(self._kinds, kind)

    @property
    def roomiest(self) -> list[PlacementCandidate]:
        return self._roomiest


class _Linked:
    """Whether two nodes are linked at least this well."""

    def __init__(self, kinds: Kinds, worst: int) -> None:
        self._kinds = kinds
        self._worst = worst

    def __call__(self, one: PlacementCandidate, other: PlacementCandidate) -> bool:
        return self._kinds[one.node_id][other.node_id] <= self._worst


class _Grade:
    """The links of one kind and better."""

    def __init__(self, search: Search, kind: int) -> None:
        self._search = search
        linked = search.linked_within(kind)
        self._is_mesh = is_mesh(search.nodes, linked)
        self._sparse: dict[int, list[Ring]] = {}
        if not self._is_mesh:
            for order in (search.nodes, search.roomiest):
                for ring in sparse_rings(order, linked):
                    self._sparse.setdefault(len(ring), []).append(ring)

    def sets(self, size: int) -> Iterator[Ring]:
        """Sets of this size, worth looking at, the preferred ones first."""
        if size == 1:
            yield from ((node,) for node in self._search.nodes)
        elif not self._is_mesh:
            yield from self._sparse.get(size, ())
        else:
            yield from self._mesh_set(size)

    def example(self, size: int) -> Ring | None:
        """A set of this size whose nodes have most memory, whether it fits or not."""
        if self._is_mesh:
            return tuple(self._search.roomiest[:size])
        return next(iter(self._sparse.get(size, ())), None)

    def _mesh_set(self, size: int) -> Iterator[Ring]:
        """The preferred nodes, with as few exchanged for roomier ones as memory demands."""
        room = self._search.room
        preferred = [node for node in self._search.nodes if room.may_take_part(node, size)]
        roomiest = [node for node in self._search.roomiest if room.may_take_part(node, size)]
        if len(preferred) < size:
            return
        alike = len({node.staged for node in preferred}) == 1
        for kept in (size, 0) if alike else range(size, -1, -1):
            chosen = preferred[:kept]
            taken = {node.node_id for node in chosen}
            fill = [node for node in roomiest if node.node_id not in taken]
            ring = (*chosen, *fill[: size - kept])
            if room.layers(ring) is not None:
                yield ring
                return


def _kinds(cluster: Cluster, nodes: Sequence[PlacementCandidate]) -> Kinds:
    ids = [node.node_id for node in nodes]
    rows: Kinds = {node_id: {node_id: NO_LINK} for node_id in ids}
    for i, one in enumerate(ids):
        for other in ids[i + 1 :]:
            rows[one][other] = rows[other][one] = cluster.links.kind(one, other)
    return rows
