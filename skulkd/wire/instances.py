"""Placed models: which runners serve them and how those reach each other."""

from typing import Annotated

from pydantic import Field

from skulkd.wire.base import CamelModel, TaggedModel, VariantUnion
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.shards import ShardAssignments


class Host(CamelModel):
    ip: str
    port: int


class BaseInstance(TaggedModel):
    instance_id: InstanceId
    shard_assignments: ShardAssignments
    context_token_limit: int | None = Field(
        default=None, description="Most tokens of prompt and answer that fit on every node."
    )


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
