"""The tracing switch and recorded traces. Times are microseconds."""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import Attributes, CamelModel
from skulkd.wire.ids import CommandId, ModelId, NodeId, TaskId

TraceTaskKind = Literal["image", "text", "embedding"]


class TracingStateResponse(CamelModel):
    enabled: bool


class UpdateTracingStateRequest(CamelModel):
    enabled: bool


class TraceSourceNode(CamelModel):
    node_id: NodeId
    friendly_name: str | None = None


UNFINISHED = "unfinished"
"""Name of the mark at the end of a part that its rank sent while it was still at work."""


class TraceEventResponse(CamelModel):
    name: str
    start_us: int
    duration_us: int
    rank: int
    category: str = Field(description="A span inside another is parent/child.")
    node_id: NodeId | None = None
    model_id: ModelId | None = None
    task_kind: TraceTaskKind | None = None
    tags: list[str] = Field(default_factory=list)
    attrs: Attributes = Field(default_factory=dict)


class TraceListItem(CamelModel):
    task_id: TaskId
    created_at: str
    file_size: int = Field(description="Bytes.")
    model_id: ModelId | None = None
    task_kind: TraceTaskKind | None = None
    categories: list[str] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)
    has_tool_activity: bool = False
    source_nodes: list[TraceSourceNode] = Field(default_factory=list)


class TraceListResponse(CamelModel):
    traces: list[TraceListItem] = Field(description="Newest first.")


class TraceItem(TraceListItem):
    """With keys that the reference lacks: whose trace it is, and whether a rank is missing."""

    command_id: CommandId | None = Field(default=None, description="Id of the chat completion.")
    ranks: list[int] = Field(default_factory=list)
    world_size: int = 1
    unfinished: list[int] = Field(
        default_factory=list, description="Ranks that are still at work, or were killed."
    )
    partial: bool = Field(default=False, description="Some rank is missing or unfinished.")


class TraceSilence(CamelModel):
    node_id: NodeId
    error: str


class TraceItems(CamelModel):
    """Answer of our `GET /v1/cluster/traces`: the reference's list, and who did not answer."""

    traces: list[TraceItem] = Field(description="Newest first.")
    unreachable_nodes: list[TraceSilence] = Field(default_factory=list)


class TracePart(CamelModel):
    """What one node tells the others of a placement about one rank's part."""

    task_id: TaskId
    rank: int
    traces: list["TraceEventResponse"]
    command_id: CommandId | None = None
    world_size: int = 1


class TraceResponse(CamelModel):
    task_id: TaskId
    traces: list[TraceEventResponse]
    source_nodes: list[TraceSourceNode] = Field(default_factory=list)


class TraceCategoryStats(CamelModel):
    total_us: int
    count: int
    min_us: int
    max_us: int
    avg_us: float


class TraceRankStats(CamelModel):
    by_category: dict[str, TraceCategoryStats]


class TraceStatsResponse(CamelModel):
    task_id: TaskId
    total_wall_time_us: int = Field(description="From the earliest start to the latest end.")
    by_category: dict[str, TraceCategoryStats]
    by_rank: dict[str, TraceRankStats] = Field(description="Keys are ranks, written as text.")
    source_nodes: list[TraceSourceNode] = Field(default_factory=list)


class DeleteTracesRequest(CamelModel):
    task_ids: list[TaskId]


class DeleteTracesResponse(CamelModel):
    deleted: list[TaskId]
    not_found: list[TaskId]


class ClusterDeleteTracesResponse(DeleteTracesResponse):
    """As for one node; `not_found` was on no node that answered."""

    unreachable_nodes: list[TraceSilence] = Field(default_factory=list)
