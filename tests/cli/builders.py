"""Answers of a daemon for tests, built from the wire models so that they have its exact shape."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from skulkctl.daemon.state import ClusterState
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.diagnostics import RunnerFlightRecorderEntry, RunnerSupervisorDiagnostics
from skulkd.wire.downloads import (
    DownloadCompleted,
    DownloadFailed,
    DownloadOngoing,
    DownloadPending,
    DownloadProgress,
    DownloadProgressData,
)
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.placement import CreateInstanceResponse
from skulkd.wire.shards import PipelineShardMetadata, ShardAssignments
from skulkd.wire.tasks import TextGeneration, TextGenerationTaskParams

M = TypeVar("M", bound=BaseModel)


def as_json(model: BaseModel) -> Any:
    """As the daemon writes it."""
    return model.model_dump(mode="json")


def a_card(model_id: str, size_bytes: int = 1) -> ModelCard:
    return ModelCard(
        model_id=ModelId(model_id),
        storage_size=Memory.of(size_bytes),
        n_layers=2,
        hidden_size=8,
        supports_tensor=False,
        tasks=["TextGeneration"],
    )


def a_shard(model_id: str, rank: int = 0, world_size: int = 1) -> PipelineShardMetadata:
    return PipelineShardMetadata(
        model_card=a_card(model_id),
        device_rank=rank,
        world_size=world_size,
        start_layer=0,
        end_layer=2,
        n_layers=2,
    )


def some_shards(model_id: str, **runner_by_node: str) -> ShardAssignments:
    ranks = list(enumerate(runner_by_node.items()))
    return ShardAssignments(
        model_id=ModelId(model_id),
        runner_to_shard={
            RunnerId(runner): a_shard(model_id, rank, len(ranks)) for rank, (_, runner) in ranks
        },
        node_to_runner={NodeId(node): RunnerId(runner) for _, (node, runner) in ranks},
    )


def pending(node_id: str, model_id: str) -> DownloadPending:
    return DownloadPending(node_id=NodeId(node_id), shard_metadata=a_shard(model_id))


def completed(node_id: str, model_id: str, size_bytes: int = 5) -> DownloadCompleted:
    return DownloadCompleted(
        node_id=NodeId(node_id), shard_metadata=a_shard(model_id), total=Memory.of(size_bytes)
    )


def failed(node_id: str, model_id: str, why: str) -> DownloadFailed:
    return DownloadFailed(
        node_id=NodeId(node_id), shard_metadata=a_shard(model_id), error_message=why
    )


def ongoing(
    node_id: str,
    model_id: str,
    done: int,
    total: int,
    speed: float = 1048576.0,
    eta_ms: int = 18000,
) -> DownloadOngoing:
    progress = DownloadProgressData(
        total=Memory.of(total),
        downloaded=Memory.of(done),
        downloaded_this_session=Memory.of(done),
        completed_files=0,
        total_files=1,
        speed=speed,
        eta_ms=eta_ms,
    )
    return DownloadOngoing(
        node_id=NodeId(node_id), shard_metadata=a_shard(model_id), download_progress=progress
    )


def downloads(**by_node: DownloadProgress) -> Any:
    """The part of a state."""
    return {node: [as_json(download)] for node, download in by_node.items()}


def accepted(model_id: str, instance_id: str | None = None) -> Any:
    """What a daemon answers to an order; a stock one does not name the instance."""
    answer = CreateInstanceResponse.model_validate(
        {"message": "Command received.", "command_id": "c1", "model_card": a_card(model_id)}
    )
    return {**as_json(answer), "instance_id": instance_id}


def a_cluster(**parts: Any) -> ClusterState:
    """A state of these parts only."""
    return ClusterState(parts)


def a_supervised_runner(runner_id: str, phase: Any, detail: str | None = None) -> Any:
    """What a node's diagnostics tell of one runner."""
    record = RunnerSupervisorDiagnostics.model_validate(
        {
            "runnerId": runner_id,
            "instanceId": "i",
            "nodeId": "n",
            "modelId": "m",
            "deviceRank": 0,
            "worldSize": 1,
            "startLayer": 0,
            "endLayer": 2,
            "nLayers": 2,
            "processAlive": True,
            "statusKind": "RunnerLoading",
            "statusSince": "2026-03-04T12:00:00+00:00",
            "secondsInStatus": 1.0,
            "phase": phase,
            "phaseStartedAt": "2026-03-04T12:00:00+00:00",
            "secondsInPhase": 1.0,
            "phaseDetail": detail,
            "completedTaskCount": 0,
        }
    )
    return as_json(record)


def a_recorder_entry(at: str, phase: Any, event: str, detail: str | None = None) -> Any:
    """What a runner recorded."""
    context = {
        "nodeId": "n",
        "runnerId": "r",
        "instanceId": "i",
        "modelId": "m",
        "rank": 0,
        "worldSize": 1,
        "startLayer": 0,
        "endLayer": 2,
        "nLayers": 2,
    }
    facts = {"at": at, "phase": phase, "event": event, "detail": detail, "context": context}
    return as_json(RunnerFlightRecorderEntry.model_validate(facts))


def a_request(
    task_id: str, command_id: str, instance_id: str, model_id: str, status: Any = "Pending"
) -> Any:
    """A task of the state that a client waits for."""
    task = TextGeneration(
        task_id=TaskId(task_id),
        command_id=CommandId(command_id),
        instance_id=InstanceId(instance_id),
        task_status=status,
        task_params=TextGenerationTaskParams(model=ModelId(model_id), input=[]),
    )
    return as_json(task)
