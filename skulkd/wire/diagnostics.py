"""Diagnostic bundles of a node and of the cluster, runner supervision, capture and cancel."""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import Attributes, CamelModel, Memory
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.machine import (
    DiskUsage,
    MemoryUsage,
    NodeIdentity,
    NodeNetworkInfo,
    SystemPerformanceProfile,
)

RunnerPhase = Literal[
    "created",
    "idle",
    "connect_group",
    "load_model",
    "warmup",
    "task_submission",
    "task_agreement",
    "prompt_build",
    "vision_preprocess",
    "kv_cache_lookup",
    "prefill_barrier",
    "prefill_pipeline",
    "prefill_stream",
    "decode_barrier",
    "decode_wait_first_token",
    "decode_stream",
    "parser",
    "cancel_requested",
    "cancel_observed",
    "completion",
    "error",
    "shutdown_cleanup",
]
ProcessRole = Literal["skulk", "runner", "vector", "python", "other"]
TaskCancelStatus = Literal["cancel_requested", "already_cancelled", "already_completed"]


class NodeRuntimeDiagnostics(CamelModel):
    node_id: NodeId
    hostname: str
    friendly_name: str | None = None
    is_master: bool
    master_node_id: NodeId | None = None
    cwd: str
    config_path: str
    config_file_exists: bool
    skulk_version: str
    skulk_commit: str
    libp2p_namespace: str | None = None
    python_unbuffered: bool
    tracing_enabled: bool
    structured_logging_configured: bool
    logging_ingest_url: str | None = None


class NodeResourceDiagnostics(CamelModel):
    gathered_memory: MemoryUsage | None = Field(
        default=None, description="Last reading that the cluster knows."
    )
    current_memory: MemoryUsage | None = Field(default=None, description="Read for this answer.")
    current_wired: Memory | None = Field(
        default=None, description="Memory that cannot be paged out; macOS only."
    )
    disk: DiskUsage | None = None
    system: SystemPerformanceProfile | None = None
    network: NodeNetworkInfo | None = None


class DiagnosticsProcess(CamelModel):
    pid: int
    parent_pid: int | None = None
    role: ProcessRole
    command: str = Field(description="Command line, secrets blanked out.")
    status: str | None = None
    cpu_percent: float | None = Field(default=None, description="Percent of one core.")
    memory_percent: float | None = Field(default=None, description="Percent of physical memory.")
    rss: Memory | None = Field(default=None, description="Resident memory.")
    elapsed_seconds: float | None = Field(default=None, description="Age of the process.")
    is_child_of_skulk: bool = Field(
        default=False, description="True for the daemon and everything below it."
    )


class MlxMemorySnapshot(CamelModel):
    generated_at: str
    active: Memory | None = None
    cache: Memory | None = None
    peak: Memory | None = Field(default=None, description="Highest since the last reset.")
    wired_limit: Memory | None = None
    source: str = Field(description="Module that was asked, for example mlx.core.")


class RunnerDiagnosticContext(CamelModel):
    node_id: NodeId
    runner_id: RunnerId
    pid: int | None = None
    instance_id: InstanceId
    model_id: ModelId
    rank: int
    world_size: int
    start_layer: int
    end_layer: int = Field(description="One past the last layer.")
    n_layers: int


class RunnerFlightRecorderEntry(CamelModel):
    at: str
    phase: RunnerPhase
    event: str = Field(description="`enter` and `exit` bracket a step; other names are points.")
    detail: str | None = None
    attrs: Attributes = Field(default_factory=dict)
    context: RunnerDiagnosticContext
    task_id: TaskId | None = None
    command_id: CommandId | None = None
    mlx_memory: MlxMemorySnapshot | None = None


class RunnerTaskDiagnostics(CamelModel):
    task_id: TaskId
    task_kind: str
    task_status: str
    instance_id: InstanceId
    command_id: CommandId | None = None
    runner_id: RunnerId | None = None
    model_id: ModelId | None = None


class RunnerLifecycleMilestone(CamelModel):
    at: str
    name: str
    detail: str | None = None


class RunnerSupervisorDiagnostics(CamelModel):
    """What the supervisor of one runner knows; never part of the replicated state."""

    runner_id: RunnerId
    instance_id: InstanceId
    node_id: NodeId
    model_id: ModelId
    device_rank: int
    world_size: int
    start_layer: int
    end_layer: int = Field(description="One past the last layer.")
    n_layers: int
    pid: int | None = None
    process_alive: bool
    exit_code: int | None = Field(default=None, description="Negative: ended by that signal.")
    status_kind: str
    status_since: str
    seconds_in_status: float
    phase: RunnerPhase
    phase_started_at: str
    seconds_in_phase: float
    last_progress_at: str | None = Field(
        default=None, description="Time of the newest recorder entry; the best sign of life."
    )
    active_task_id: TaskId | None = None
    active_command_id: CommandId | None = None
    phase_detail: str | None = None
    last_mlx_memory: MlxMemorySnapshot | None = None
    flight_recorder: list[RunnerFlightRecorderEntry] = Field(
        default_factory=list, description="Oldest first, at most 128."
    )
    pending_task_ids: list[TaskId] = Field(
        default_factory=list, description="Sent, not yet acknowledged."
    )
    in_progress_tasks: list[RunnerTaskDiagnostics] = Field(default_factory=list)
    completed_task_count: int
    cancelled_task_ids: list[TaskId] = Field(default_factory=list)
    last_task_sent_at: str | None = None
    last_event_received_at: str | None = None
    last_event_type: str | None = None
    milestones: list[RunnerLifecycleMilestone] = Field(
        default_factory=list, description="Oldest first, at most 32."
    )


class PlacementRunnerDiagnostics(CamelModel):
    runner_id: RunnerId
    node_id: NodeId
    friendly_name: str | None = None
    status_kind: str | None = Field(default=None, description="Null until the runner reported.")
    device_rank: int
    world_size: int
    start_layer: int
    end_layer: int = Field(description="One past the last layer.")
    n_layers: int
    is_local: bool
    is_master: bool
    tasks: list[RunnerTaskDiagnostics] = Field(default_factory=list)


class InstancePlacementDiagnostics(CamelModel):
    instance_id: InstanceId
    model_id: ModelId
    master_node_id: NodeId | None = None
    master_is_placement_node: bool
    local_node_is_placement_node: bool
    placement_node_ids: list[NodeId] = Field(default_factory=list)
    runners: list[PlacementRunnerDiagnostics] = Field(
        default_factory=list, description="In rank order."
    )
    warnings: list[str] = Field(default_factory=list)


class NodeDiagnostics(CamelModel):
    generated_at: str
    runtime: NodeRuntimeDiagnostics
    identity: NodeIdentity | None = None
    resources: NodeResourceDiagnostics
    processes: list[DiagnosticsProcess] = Field(default_factory=list)
    supervisor_runners: list[RunnerSupervisorDiagnostics] = Field(default_factory=list)
    placements: list[InstancePlacementDiagnostics] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list, description="Sorted, no duplicates.")


class ClusterNodeDiagnostics(CamelModel):
    node_id: NodeId
    url: str | None = Field(default=None, description="Null for the node that answers.")
    ok: bool
    diagnostics: NodeDiagnostics | None = None
    error: str | None = None


class ClusterDiagnostics(CamelModel):
    generated_at: str
    local_node_id: NodeId
    master_node_id: NodeId | None = None
    nodes: list[ClusterNodeDiagnostics] = Field(
        default_factory=list, description="The answering node first."
    )


class DiagnosticCaptureRequest(CamelModel):
    """With neither id the capture is of the whole node, without process samples."""

    runner_id: RunnerId | None = None
    task_id: TaskId | None = None
    include_process_samples: bool = True
    sample_duration_seconds: float = Field(default=3.0, ge=1.0, le=10.0)


class DiagnosticProcessSample(CamelModel):
    name: str
    command: list[str]
    ok: bool
    exit_code: int | None = None
    duration_seconds: float
    stdout: str | None = None
    stderr: str | None = None
    error: str | None = None


class DiagnosticCaptureResponse(CamelModel):
    generated_at: str
    node_id: NodeId
    node_diagnostics: NodeDiagnostics
    runner: RunnerSupervisorDiagnostics | None = None
    flight_recorder: list[RunnerFlightRecorderEntry] = Field(default_factory=list)
    mlx_memory: MlxMemorySnapshot | None = None
    process_samples: list[DiagnosticProcessSample] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class RunnerTaskCancelRequest(CamelModel):
    task_id: TaskId


class RunnerTaskCancelResponse(CamelModel):
    node_id: NodeId
    runner_id: RunnerId
    task_id: TaskId
    status: TaskCancelStatus
    message: str
