"""Builders with defaults for the parts of a cluster's state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics, RunnerTaskDiagnostics
from skulkd.wire.downloads import DownloadFailed, DownloadPending
from skulkd.wire.events import Event
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import MlxRingInstance
from skulkd.wire.machine import DiskUsage
from skulkd.wire.shards import PipelineShardMetadata, ShardAssignments
from skulkd.wire.state import State
from skulkd.wire.tasks import TaskStatus, TextGeneration, TextGenerationTaskParams

GIB = 1024**3
NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
A, B, C, D = (NodeId(name) for name in "ABCD")
MODEL = ModelId("org/llama")


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def a_card(model_id: ModelId = MODEL) -> ModelCard:
    return ModelCard(
        model_id=model_id,
        storage_size=Memory.of(GIB),
        n_layers=16,
        hidden_size=2048,
        supports_tensor=True,
        tasks=["TextGeneration"],
    )


def a_shard(rank: int = 0, ranks: int = 1, model_id: ModelId = MODEL) -> PipelineShardMetadata:
    size = 16 // ranks
    return PipelineShardMetadata(
        model_card=a_card(model_id),
        device_rank=rank,
        world_size=ranks,
        start_layer=rank * size,
        end_layer=(rank + 1) * size,
        n_layers=16,
    )


def an_instance(name: str = "i1", nodes: tuple[NodeId, ...] = (A,)) -> MlxRingInstance:
    """An instance over these nodes; its runners are called `<name>-r<rank>`."""
    runners = [RunnerId(f"{name}-r{rank}") for rank in range(len(nodes))]
    return MlxRingInstance(
        instance_id=InstanceId(name),
        shard_assignments=ShardAssignments(
            model_id=MODEL,
            runner_to_shard={r: a_shard(i, len(nodes)) for i, r in enumerate(runners)},
            node_to_runner=dict(zip(nodes, runners, strict=True)),
        ),
        hosts_by_node={},
        ephemeral_port=50000,
    )


def a_task(
    name: str = "t1", instance: str = "i1", status: TaskStatus = "Running"
) -> TextGeneration:
    return TextGeneration(
        task_id=TaskId(name),
        task_status=status,
        instance_id=InstanceId(instance),
        command_id=CommandId(f"command-of-{name}"),
        task_params=TextGenerationTaskParams(model=MODEL, input=[]),
    )


def a_state(**fields: Any) -> State:
    return State(**fields)


def a_failed_download(node: NodeId = A, model_id: ModelId = MODEL) -> DownloadFailed:
    return DownloadFailed(
        node_id=node, shard_metadata=a_shard(model_id=model_id), error_message="no route"
    )


def a_pending_download(node: NodeId = A, model_id: ModelId = MODEL) -> DownloadPending:
    return DownloadPending(node_id=node, shard_metadata=a_shard(model_id=model_id))


def a_disk(free_gib: float, total_gib: float = 100) -> DiskUsage:
    return DiskUsage(
        total=Memory.of(int(total_gib * GIB)), available=Memory.of(int(free_gib * GIB))
    )


def a_supervisor(
    runner: str = "i1-r0",
    instance: str = "i1",
    tasks: tuple[str, ...] = (),
    *,
    alive: bool = True,
) -> RunnerSupervisorDiagnostics:
    return RunnerSupervisorDiagnostics(
        runner_id=RunnerId(runner),
        instance_id=InstanceId(instance),
        node_id=A,
        model_id=MODEL,
        device_rank=0,
        world_size=1,
        start_layer=0,
        end_layer=16,
        n_layers=16,
        pid=4711,
        process_alive=alive,
        status_kind="RunnerRunning",
        status_since="2026-01-02T12:00:00+00:00",
        seconds_in_status=1.0,
        phase="decode_stream",
        phase_started_at="2026-01-02T12:00:00+00:00",
        seconds_in_phase=1.0,
        in_progress_tasks=[
            RunnerTaskDiagnostics(
                task_id=TaskId(name),
                task_kind="TextGeneration",
                task_status="Running",
                instance_id=InstanceId(instance),
            )
            for name in tasks
        ],
        completed_task_count=0,
    )


def replay(*events: Event, state: State | None = None) -> State:
    """The state after these events."""
    from skulkd.cluster.reducer import apply

    state = State() if state is None else state
    for event in events:
        state = apply(state, event, state.last_event_applied_idx + 1)
    return state
