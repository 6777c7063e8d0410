"""Placed models: which runners serve them and how those reach each other."""

from typing import Annotated, Any

from pydantic import Field, SerializationInfo, SerializerFunctionWrapHandler, model_serializer
from pydantic.json_schema import SkipJsonSchema

from skulkd.wire.base import CamelModel, TaggedModel, VariantUnion
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.placement_record import PlacementRecord
from skulkd.wire.shards import ShardAssignments

# Given as context when an instance is written for another node or for the disk, record and all.
WHOLE = "whole"


class Host(CamelModel):
    ip: str
    port: int


class BaseInstance(TaggedModel):
    instance_id: InstanceId
    shard_assignments: ShardAssignments
    context_token_limit: int | None = Field(
        default=None, description="Most tokens of prompt and answer that fit on every node."
    )
    record: SkipJsonSchema[PlacementRecord | None] = Field(default=None, exclude=True)

    @model_serializer(mode="wrap")
    def _add_tag(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        body = handler(self)
        if self.record is not None and info.context == WHOLE:
            body["record"] = self.record.model_dump(mode="json")
        return {type(self).__name__: body}


class MlxRingInstance(BaseInstance):
    """Runners in a TCP ring."""

    hosts_by_node: dict[NodeId, list[Host]] = Field(
        description="For each node, the address of every rank as that node must dial it."
    )
    ephemeral_port: int


class MlxJacclInstance(BaseInstance):
    """Runners over Thunderbolt RDMA."""

    jaccl_devices: list[list[str | None]] = Field(
        description="Row and column are ranks; the interface from one to the other, null to itself."
    )
    jaccl_coordinators: dict[NodeId, str] = Field(description="Address as host:port.")


Instance = Annotated[MlxRingInstance | MlxJacclInstance, VariantUnion()]


class BoundInstance(CamelModel):
    """An instance as seen by one of its runners."""

    instance: Instance
    bound_runner_id: RunnerId
    bound_node_id: NodeId
