"""The whole answer of `GET /state`, keys in wire order."""

from pydantic import Field

from skulkd.wire.base import CamelModel, UtcTime
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.health import NodeHealth
from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.machine import (
    DiskUsage,
    MemoryUsage,
    NodeIdentity,
    NodeNetworkInfo,
    NodeThunderboltInfo,
    RdmaCtlStatus,
    SystemPerformanceProfile,
    ThunderboltBridgeStatus,
)
from skulkd.wire.runners import RunnerStatus
from skulkd.wire.tasks import Task
from skulkd.wire.topology import Topology


class State(CamelModel):
    """Replicated state, then readings and health of the nodes in `lastSeen`."""

    instances: dict[InstanceId, Instance] = Field(default_factory=dict)
    runners: dict[RunnerId, RunnerStatus] = Field(default_factory=dict)
    downloads: dict[NodeId, list[DownloadProgress]] = Field(default_factory=dict)
    tasks: dict[TaskId, Task] = Field(default_factory=dict)
    last_seen: dict[NodeId, UtcTime] = Field(default_factory=dict)
    topology: Topology = Field(default_factory=Topology)
    tracing_enabled: bool = False
    last_event_applied_idx: int = Field(
        default=-1, ge=-1, description="-1 before the first event of a session."
    )
    node_network: dict[NodeId, NodeNetworkInfo] = Field(default_factory=dict)
    node_thunderbolt: dict[NodeId, NodeThunderboltInfo] = Field(default_factory=dict)
    node_thunderbolt_bridge: dict[NodeId, ThunderboltBridgeStatus] = Field(default_factory=dict)
    thunderbolt_bridge_cycles: list[list[NodeId]] = Field(default_factory=list)
    node_memory: dict[NodeId, MemoryUsage] = Field(default_factory=dict)
    node_system: dict[NodeId, SystemPerformanceProfile] = Field(default_factory=dict)
    node_identities: dict[NodeId, NodeIdentity] = Field(default_factory=dict)
    node_disk: dict[NodeId, DiskUsage] = Field(default_factory=dict)
    node_rdma_ctl: dict[NodeId, RdmaCtlStatus] = Field(default_factory=dict)
    node_health: dict[NodeId, NodeHealth] = Field(default_factory=dict)
