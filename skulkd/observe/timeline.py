"""Flight recorders of many runners as one timeline. Pure; clocks are not corrected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics
from skulkd.wire.timeline import ClusterTimelineEntry, ClusterTimelineRunner


def side_by_side(
    records: Iterable[RunnerSupervisorDiagnostics],
) -> tuple[list[ClusterTimelineRunner], list[ClusterTimelineEntry]]:
    """Runners by model, rank and id; their entries by time, node and rank."""
    records = list(records)
    runners = sorted(
        map(_runner, records), key=lambda one: (one.model_id, one.device_rank, one.runner_id)
    )
    entries = [entry for record in records for entry in _entries(record)]
    return runners, sorted(entries, key=lambda one: (one.at, one.node_id, one.device_rank))


def _runner(record: RunnerSupervisorDiagnostics) -> ClusterTimelineRunner:
    return ClusterTimelineRunner(
        node_id=record.node_id,
        runner_id=record.runner_id,
        instance_id=record.instance_id,
        model_id=record.model_id,
        device_rank=record.device_rank,
        world_size=record.world_size,
        pid=record.pid,
        process_alive=record.process_alive,
        status_kind=record.status_kind,
        phase=record.phase,
        phase_detail=record.phase_detail,
        seconds_in_phase=record.seconds_in_phase,
        last_progress_at=record.last_progress_at,
        active_task_id=record.active_task_id,
        active_command_id=record.active_command_id,
        last_mlx_memory=record.last_mlx_memory,
    )


def _entries(record: RunnerSupervisorDiagnostics) -> Iterator[ClusterTimelineEntry]:
    for entry in record.flight_recorder:
        yield ClusterTimelineEntry(
            at=entry.at,
            node_id=record.node_id,
            runner_id=record.runner_id,
            device_rank=record.device_rank,
            world_size=record.world_size,
            phase=entry.phase,
            event=entry.event,
            detail=entry.detail,
            attrs=entry.attrs,
            task_id=entry.task_id,
            command_id=entry.command_id,
            mlx_memory=entry.mlx_memory,
        )
