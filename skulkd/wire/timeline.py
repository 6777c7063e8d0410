"""Phases of all runners side by side: `GET /v1/diagnostics/cluster/timeline`, and our own
`GET /v1/cluster/timeline`, which says more."""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import Attributes, CamelModel
from skulkd.wire.cluster import LostNode
from skulkd.wire.diagnostics import (
    MlxMemorySnapshot,
    RunnerPhase,
    RunnerSupervisorDiagnostics,
)
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId


class ClusterTimelineRunner(CamelModel):
    """Where one runner stands now."""

    node_id: NodeId
    runner_id: RunnerId
    instance_id: InstanceId
    model_id: ModelId
    device_rank: int
    world_size: int
    pid: int | None = None
    process_alive: bool
    status_kind: str
    phase: RunnerPhase
    phase_detail: str | None = None
    seconds_in_phase: float = Field(description="By the clock of the node that owns the runner.")
    last_progress_at: str | None = None
    active_task_id: TaskId | None = None
    active_command_id: CommandId | None = None
    last_mlx_memory: MlxMemorySnapshot | None = None


class RunnerLive(CamelModel):
    """Where a runner's work stands at this moment; it tells so every second while it works."""

    busy: bool
    step: int = Field(description="Steps begun; counts the same on every rank.")
    moves: int = Field(description="Waits that have ended.")
    site: str | None = Field(default=None, description="What it waits in; null: its own work.")
    site_seconds: float
    silent_seconds: float = Field(description="Since it said so, by its node's clock.")
    still_seconds: float = Field(description="Since step or moves changed.")


class RunnerCompute(CamelModel):
    """What a runner computes with where there is no accelerator."""

    blas: str = Field(description="The library that multiplies matrices.")
    gflops: float | None = Field(
        default=None, description="10⁹ operations per second of a core, measured at load."
    )
    cores: int = Field(default=1, description="Cores that large matrices are computed on.")
    layout: str = Field(default="rows", description="Order of the weights: rows, columns, panels.")
    unpacked: bool = Field(default=False, description="Packed weights were made float32 at load.")
    problem: str | None = Field(
        default=None, description="Why MLX kept its own slow library; null: it did not."
    )


WaitReason = Literal["files", "memory", "ranks"]


class RunnerWaiting(CamelModel):
    """What a runner waits for before its process is started."""

    reason: WaitReason = Field(
        description="`files` of the model, free `memory`, or the other `ranks` of its group."
    )
    seconds: float = Field(description="Since it waits for this.")
    detail: str | None = Field(default=None, description="What goes on, or what failed last.")
    done_bytes: int | None = None
    total_bytes: int | None = None
    bytes_per_second: float | None = Field(default=None, description="Over the last 10 s.")
    seconds_left: float | None = Field(default=None, description="At that rate.")
    still_seconds: float | None = Field(default=None, description="Since the last byte came.")


class RunnerStanding(RunnerSupervisorDiagnostics):
    """A supervisor's record with what only the timeline tells."""

    live: RunnerLive | None = None
    pending_seconds: float | None = None
    waiting: RunnerWaiting | None = None
    compute: RunnerCompute | None = None


class TimelineRunner(ClusterTimelineRunner):
    """With keys that the reference lacks."""

    # Not closed: a reader must not lose a runner because its phase is newer than the reader.
    phase: str = Field(description="Phase of a runner; later versions may have more.")  # type: ignore[assignment]
    pending_task_ids: list[TaskId] = Field(
        default_factory=list, description="Sent, not yet acknowledged."
    )
    pending_seconds: float | None = Field(default=None, description="Age of the oldest of them.")
    live: RunnerLive | None = Field(default=None, description="Null: it never told.")
    waiting: RunnerWaiting | None = Field(
        default=None, description="Null: its process is started, or has failed."
    )
    compute: RunnerCompute | None = Field(
        default=None, description="Null: no model is loaded, or on an accelerator."
    )


class ClusterTimelineEntry(CamelModel):
    """One flight recorder entry; the rest of its identity is in `runners` under `runnerId`."""

    at: str
    node_id: NodeId
    runner_id: RunnerId
    device_rank: int
    world_size: int
    phase: RunnerPhase
    event: str
    detail: str | None = None
    attrs: Attributes = Field(default_factory=dict)
    task_id: TaskId | None = None
    command_id: CommandId | None = None
    mlx_memory: MlxMemorySnapshot | None = None


class ClusterTimelineUnreachable(CamelModel):
    node_id: NodeId
    url: str | None = None
    error: str


class ClusterTimeline(CamelModel):
    generated_at: str
    local_node_id: NodeId
    master_node_id: NodeId | None = None
    runners: list[ClusterTimelineRunner] = Field(
        default_factory=list, description="By model, rank, runner."
    )
    timeline: list[ClusterTimelineEntry] = Field(
        default_factory=list, description="By time, node, rank; clocks are not corrected."
    )
    unreachable_nodes: list[ClusterTimelineUnreachable] = Field(default_factory=list)


class ClusterTimelineSkew(CamelModel):
    """How far a node's clock is ahead, measured over one question and its answer."""

    node_id: NodeId
    offset_seconds: float = Field(description="Positive: its clock is ahead of the answering node.")
    round_trip_seconds: float = Field(description="The offset is not known better than this.")


class ClusterTimelineLimits(CamelModel):
    """The deadlines that end a runner which makes no progress."""

    eval_seconds: float
    agreement_seconds: float
    warmup_seconds: float
    connect_seconds: float
    first_report_seconds: float
    progress_seconds: float | None = Field(
        default=None, description="For a request whose first rank tells no progress."
    )


class TimelineEntry(ClusterTimelineEntry):
    """With what saves readers the search in `runners`; keys that the reference lacks."""

    phase: str = Field(description="As in `runners`.")  # type: ignore[assignment]
    instance_id: InstanceId | None = None
    model_id: ModelId | None = None


class Timeline(ClusterTimeline):
    """Answer of our `GET /v1/cluster/timeline`: the reference's, and keys that it lacks."""

    runners: list[TimelineRunner] = Field(  # type: ignore[assignment]
        default_factory=list, description="By model, rank, runner."
    )
    timeline: list[TimelineEntry] = Field(  # type: ignore[assignment]
        default_factory=list, description="By time, node, rank; clocks are not corrected."
    )
    clock_skews: list[ClusterTimelineSkew] = Field(
        default_factory=list, description="Of the other nodes, as measured just now."
    )
    limits: ClusterTimelineLimits | None = Field(
        default=None, description="Those of the answering node."
    )
    lost_nodes: list[LostNode] = Field(
        default_factory=list, description="Members that left without notice and are not back."
    )


class NodeTimeline(CamelModel):
    """What one node tells another about its runners, with its own clock before and after."""

    asked_at: str
    answered_at: str
    runners: list[TimelineRunner] = Field(default_factory=list)
    timeline: list[TimelineEntry] = Field(default_factory=list)
