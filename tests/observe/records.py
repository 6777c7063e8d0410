"""Supervisor records made by hand, and a worker that has nothing but them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.cluster import NodeWarning
from skulkd.wire.diagnostics import (
    RunnerDiagnosticContext,
    RunnerFlightRecorderEntry,
    RunnerSupervisorDiagnostics,
    TaskCancelStatus,
)
from skulkd.wire.ids import InstanceId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.tasks import TextGeneration
from skulkd.worker.refusals import NoSuchTask
from skulkd.worker.task_stream import TaskStream

START = datetime(2026, 5, 4, 14, 0, 0, tzinfo=UTC)


def stamp(second: float) -> str:
    return (START + timedelta(seconds=second)).isoformat(timespec="microseconds")


def an_entry(second: float, phase: str, event: str, node: str, rank: int) -> Any:
    return RunnerFlightRecorderEntry(
        at=stamp(second),
        phase=phase,  # type: ignore[arg-type]
        event=event,
        context=RunnerDiagnosticContext(
            node_id=NodeId(node),
            runner_id=RunnerId(f"runner-{rank}"),
            instance_id=InstanceId("inst-1"),
            model_id=ModelId("m"),
            rank=rank,
            world_size=2,
            start_layer=0,
            end_layer=1,
            n_layers=2,
        ),
    )


def a_record(node: str, rank: int = 0, **changes: Any) -> RunnerSupervisorDiagnostics:
    """A ready rank of two, that has recorded two things."""
    entries = [
        an_entry(rank, "created", "process_started", node, rank),
        an_entry(10 + rank, "idle", "runner_ready", node, rank),
    ]
    facts: dict[str, Any] = {
        "runner_id": f"runner-{rank}",
        "instance_id": "inst-1",
        "node_id": node,
        "model_id": "m",
        "device_rank": rank,
        "world_size": 2,
        "start_layer": 0,
        "end_layer": 1,
        "n_layers": 2,
        "pid": None,
        "process_alive": True,
        "status_kind": "RunnerReady",
        "status_since": stamp(10),
        "seconds_in_status": 1.0,
        "phase": "idle",
        "phase_started_at": stamp(10),
        "seconds_in_phase": 1.0,
        "last_progress_at": stamp(10 + rank),
        "flight_recorder": entries,
        "completed_task_count": 0,
    }
    return RunnerSupervisorDiagnostics(**{**facts, **changes})


class RecordingWorker:
    """A worker for the API that runs nothing and shows these records."""

    def __init__(self, records: list[RunnerSupervisorDiagnostics]) -> None:
        self.records = records
        self.cancelled: list[TaskId] = []

    async def submit(self, task: TextGeneration, generation: GenerationOptions) -> TaskStream:
        raise NotImplementedError

    def cancel(self, task_id: TaskId) -> TaskCancelStatus:
        if all(task_id != task.task_id for one in self.records for task in one.in_progress_tasks):
            raise NoSuchTask(task_id)
        self.cancelled.append(task_id)
        return "cancel_requested"

    def diagnostics(self) -> list[RunnerSupervisorDiagnostics]:
        return self.records

    def runner_pids(self) -> frozenset[int]:
        return frozenset(one.pid for one in self.records if one.pid is not None)

    def warnings(self) -> list[NodeWarning]:
        return []
