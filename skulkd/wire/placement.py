"""Requests to place and remove models. Envelopes are snake_case, what is inside is camelCase."""

from typing import Any, Literal

from pydantic import Field

from skulkd.wire.base import SnakeModel
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId
from skulkd.wire.instances import Instance

Sharding = Literal["Tensor", "Pipeline"]
InstanceMeta = Literal["MlxRing", "MlxJaccl"]
MemoryPool = Literal["ram", "vram"]
DequantizeMode = Literal["auto", "on", "off"]


class PlaceInstanceParams(SnakeModel):
    model_id: ModelId
    sharding: Sharding = "Pipeline"
    instance_meta: InstanceMeta = "MlxRing"
    min_nodes: int = 1
    excluded_nodes: list[NodeId] = Field(default_factory=list)
    only_nodes: list[NodeId] = Field(
        default_factory=list, description="Use none but these; empty means any."
    )


class CreateInstanceParams(SnakeModel):
    instance: Instance
    excluded_nodes: list[NodeId] = Field(
        default_factory=list, description="Not on these, should it have to move."
    )
    only_nodes: list[NodeId] = Field(
        default_factory=list, description="On none but these, should it have to move."
    )


class CreateInstanceResponse(SnakeModel):
    message: str
    command_id: CommandId
    model_card: ModelCard
    instance_id: InstanceId | None = Field(
        default=None, description="The new instance; null from a node that does not tell."
    )


class DeleteInstanceResponse(SnakeModel):
    message: str
    command_id: CommandId
    instance_id: InstanceId


class RestartInstanceResponse(SnakeModel):
    message: str
    instance_id: InstanceId
    node_ids: list[NodeId]


class NodeNeed(SnakeModel):
    """Bytes that a share takes on one node, and what the node may give."""

    total_bytes: int
    weights_bytes: int
    overhead_bytes: int
    kv_bytes: int
    floor_bytes: int
    usable_bytes: int
    pool: MemoryPool = Field(
        default="ram", description="Where models go there: the machine's memory or its GPU's."
    )
    unpacked_from_bytes: int | None = Field(
        default=None,
        description="Size of the weights as stored, when they are unpacked to float32 at load;"
        " null when they stay as they are.",
    )


class PlacementPreview(SnakeModel):
    """One combination: an instance that would work, or the reason why none does."""

    model_id: ModelId
    sharding: Sharding
    instance_meta: InstanceMeta
    instance: Instance | None = None
    memory_delta_by_node: dict[NodeId, int] | None = Field(
        default=None, description="Bytes of weights each node would take."
    )
    error: str | None = None
    effective_sharding: Sharding | None = Field(
        default=None, description="What it would be; on one node always Pipeline."
    )
    effective_instance_meta: InstanceMeta | None = Field(
        default=None, description="What it would be; on one node always MlxRing."
    )
    context_token_limit: int | None = Field(
        default=None, description="Most tokens of prompt and answer; null when nothing bounds it."
    )
    need_by_node: dict[NodeId, NodeNeed] | None = Field(
        default=None, description="All that each node must give, part by part."
    )
    refusal: dict[str, Any] | None = Field(
        default=None, description="The error for programs: kind, data and hints."
    )


class PlacementPreviewResponse(SnakeModel):
    previews: list[PlacementPreview]
