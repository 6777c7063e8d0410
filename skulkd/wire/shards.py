"""Which part of a model a runner holds."""

from typing import Annotated, Self

from pydantic import Field, NonNegativeInt, model_validator

from skulkd.wire.base import CamelModel, TaggedModel, VariantUnion
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId, NodeId, RunnerId


class BaseShardMetadata(TaggedModel):
    model_card: ModelCard
    device_rank: int
    world_size: int
    resolved_backend: str | None = None
    immediate_exception: bool = Field(default=False, description="Test aid: fail at once.")
    should_timeout: float | None = Field(default=None, description="Test aid: seconds to hang.")
    start_layer: NonNegativeInt = Field(description="First layer.")
    end_layer: NonNegativeInt = Field(description="One past the last layer.")
    n_layers: NonNegativeInt = Field(description="Layers of the whole model.")


class PipelineShardMetadata(BaseShardMetadata):
    """A range of layers."""


class TensorShardMetadata(BaseShardMetadata):
    """A slice of every layer."""


class CfgShardMetadata(BaseShardMetadata):
    """A layer range of one guidance branch of an image model."""

    cfg_rank: int
    cfg_world_size: int = 2
    pipeline_rank: int
    pipeline_world_size: int


ShardMetadata = Annotated[
    PipelineShardMetadata | CfgShardMetadata | TensorShardMetadata, VariantUnion()
]


class ShardAssignments(CamelModel):
    """Both maps are in rank order."""

    model_id: ModelId
    runner_to_shard: dict[RunnerId, ShardMetadata]
    node_to_runner: dict[NodeId, RunnerId]

    @model_validator(mode="after")
    def _runners_have_shards(self) -> Self:
        for node_id, runner_id in self.node_to_runner.items():
            if runner_id not in self.runner_to_shard:
                raise ValueError(f"runner {runner_id} of node {node_id} has no shard")
        return self
