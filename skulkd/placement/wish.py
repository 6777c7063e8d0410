"""What is to be placed, and where it must or must not go."""

from __future__ import annotations

from dataclasses import dataclass

from skulkd.placement.memory import embeds_only
from skulkd.placement.shape import UNKNOWN_SHAPE, ModelDimensions
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import NodeId
from skulkd.wire.placement import InstanceMeta, Sharding

# Engines whose runners can share a model; llama.cpp cannot.
_SHARING_ENGINES = frozenset({"mlx"})


@dataclass(frozen=True, slots=True)
class Wish:
    """`required` must all be used, of `only` any may be; both empty means no such wish."""

    card: ModelCard
    sharding: Sharding = "Pipeline"
    min_nodes: int = 1
    excluded: frozenset[NodeId] = frozenset()
    required: frozenset[NodeId] = frozenset()
    only: frozenset[NodeId] = frozenset()
    meta: InstanceMeta = "MlxRing"
    shape: ModelDimensions = UNKNOWN_SHAPE

    @property
    def least(self) -> int:
        """How many nodes there must be at least."""
        return max(1, self.min_nodes, len(self.required))

    @property
    def single_node_only(self) -> bool:
        """Whether no engine that can serve the model can share it; nobody shares embeddings."""
        if embeds_only(self.card):
            return True
        tags = self.card.placement.compatible_backends
        return bool(tags) and not any(tag.partition("-")[0] in _SHARING_ENGINES for tag in tags)
