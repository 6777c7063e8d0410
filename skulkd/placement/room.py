"""Whether a set of nodes has room for a model, and how it would be divided there. Pure.

Whole numbers only: the search asks this for many sets. Needs are compared as in `memory.py`,
strictly: an exact fit is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from skulkd.placement.candidates import Budget, PlacementCandidate
from skulkd.placement.layers import keep_within, split_layers
from skulkd.placement.memory import FLOOR_BYTES, Need, need_of
from skulkd.placement.shape import tensor_obstacles
from skulkd.placement.wish import Wish
from skulkd.wire.ids import NodeId

# Each of the three parts of a need is rounded up by itself.
_ROUNDING_BYTES = 3


class Room:
    """The arithmetic of one wish on the memory of the nodes."""

    def __init__(self, wish: Wish, nodes: Sequence[PlacementCandidate]) -> None:
        self._wish = wish
        self._layers = wish.card.n_layers
        self._whole = max(1, need_of(wish.card, shape=wish.shape).total_bytes - FLOOR_BYTES)
        self._budgets = {node.node_id: _budget(node) for node in nodes}
        self._usable = {node_id: found.usable_bytes for node_id, found in self._budgets.items()}
        self._pieces: dict[tuple[int, int], tuple[Fraction, Need]] = {}
        self._divides: dict[int, bool] = {}

    def usable(self, node_id: NodeId) -> int:
        return self._usable[node_id]

    def budget(self, node_id: NodeId) -> Budget:
        return self._budgets[node_id]

    def need(self, part: Fraction) -> Need:
        return need_of(self._wish.card, part, self._wish.shape)

    def piece(self, count: int, of: int) -> tuple[Fraction, Need]:
        """So many of so many parts and what they need; many ranks have the same."""
        if (count, of) not in self._pieces:
            part = Fraction(count, of)
            self._pieces[count, of] = (part, self.need(part))
        return self._pieces[count, of]

    def divides(self, size: int) -> bool:
        """Whether so many ranks can share the model in the way that was asked for."""
        if size == 1 or self._wish.sharding == "Pipeline":
            return size <= self._layers
        if size not in self._divides:
            obstacles = tensor_obstacles(self._wish.card, self._wish.shape, size)
            self._divides[size] = not obstacles
        return self._divides[size]

    def layers(self, ring: Sequence[PlacementCandidate]) -> list[int] | None:
        """Layers of each rank; None when the model does not fit on exactly these nodes."""
        usable = [self._usable[node.node_id] for node in ring]
        if self._wish.sharding == "Tensor" and len(ring) > 1:
            return [self._layers] * len(ring) if self._slices_fit(usable) else None
        smallest, total = min(usable), sum(usable)
        if self._whole * smallest + FLOOR_BYTES * total >= smallest * total:
            return None
        counts = split_layers(self._layers, usable)
        if counts is None or len(ring) == 1:
            return counts
        return keep_within(counts, [self._most_layers(amount) for amount in usable])

    def parts(self, ring: Sequence[PlacementCandidate]) -> list[Fraction]:
        """The part of each node before layers are counted, as a refusal explains it."""
        usable = [self._usable[node.node_id] for node in ring]
        if self._wish.sharding == "Tensor" or not sum(usable):
            return [Fraction(1, len(ring))] * len(ring)
        return [Fraction(amount, sum(usable)) for amount in usable]

    def layer_parts(self, ring: Sequence[PlacementCandidate]) -> list[Fraction]:
        """The part of each node in whole layers, at least one."""
        counts = split_layers(self._layers, [self._usable[node.node_id] for node in ring])
        return [Fraction(count, self._layers) for count in counts or [1] * len(ring)]

    def may_take_part(self, node: PlacementCandidate, size: int) -> bool:
        """Whether a node could hold the least share of so many ranks."""
        if self._wish.sharding == "Tensor":
            return self._slices_fit([self._usable[node.node_id]], size)
        return size == 1 or self._most_layers(self._usable[node.node_id]) > 0

    def _slices_fit(self, usable: Sequence[int], size: int | None = None) -> bool:
        ranks = size or len(usable)
        rounding = 0 if ranks == 1 else _ROUNDING_BYTES
        return self._whole + (FLOOR_BYTES + rounding) * ranks < min(usable) * ranks

    def _most_layers(self, usable: int) -> int:
        room = (usable - FLOOR_BYTES - _ROUNDING_BYTES) * self._layers
        return max(0, min(self._layers, (room - 1) // self._whole))


def _budget(node: PlacementCandidate) -> Budget:
    budget = node.budget
    if budget is None:
        raise ValueError(f"the memory of {node.node_id} was not read; it cannot be planned with")
    return budget
