"""Flight recorders of many runners as one timeline. Pure; clocks are measured, not corrected.

The parts of other nodes stay plain JSON: with thousands of entries, reading them into models and
writing them out again would be most of the answer's cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_core import from_json

from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics
from skulkd.wire.timeline import RunnerStanding, TimelineEntry, TimelineRunner


def side_by_side(
    records: Iterable[RunnerSupervisorDiagnostics],
) -> tuple[list[TimelineRunner], list[TimelineEntry]]:
    """Runners by model, rank and id; their entries by time, node and rank."""
    records = list(records)
    runners = sorted(
        map(_runner, records), key=lambda one: (one.model_id, one.device_rank, one.runner_id)
    )
    entries = [entry for record in records for entry in _entries(record)]
    return runners, sorted(entries, key=lambda one: (one.at, one.node_id, one.device_rank))


def _runner(record: RunnerSupervisorDiagnostics) -> TimelineRunner:
    standing = record if isinstance(record, RunnerStanding) else None
    return TimelineRunner(
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
        pending_task_ids=record.pending_task_ids,
        pending_seconds=None if standing is None else standing.pending_seconds,
        live=None if standing is None else standing.live,
        waiting=None if standing is None else standing.waiting,
        compute=None if standing is None else standing.compute,
    )


def _entries(record: RunnerSupervisorDiagnostics) -> Iterator[TimelineEntry]:
    for entry in record.flight_recorder:
        yield TimelineEntry(
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
            instance_id=record.instance_id,
            model_id=record.model_id,
        )


@dataclass(frozen=True, slots=True)
class TimelinePart:
    """What one node said: its runners and entries as JSON, its clock before and after."""

    runners: list[dict[str, Any]]
    entries: list[dict[str, Any]]
    asked_at: datetime
    answered_at: datetime


class BadTimelinePart(ValueError):
    """What another node said is not its part of a timeline."""


def read_part(answer: bytes) -> TimelinePart:
    """The part of one node. Raises BadTimelinePart."""
    try:
        document = from_json(answer)
        asked_at, answered_at = document["askedAt"], document["answeredAt"]
        return TimelinePart(
            _items(document["runners"], "nodeId", "runnerId", "modelId", "deviceRank"),
            _items(document["timeline"], "at", "nodeId", "deviceRank"),
            datetime.fromisoformat(asked_at),
            datetime.fromisoformat(answered_at),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BadTimelinePart(f"{type(error).__name__}: {error}") from error


def _items(items: Any, *keys: str) -> list[dict[str, Any]]:
    for item in items:
        for key in keys:
            item[key]  # a KeyError is what we are after
    return list(items)


def stitch(parts: Iterable[TimelinePart]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All runners and all entries, in the order of the contract."""
    parts = list(parts)
    runners = [runner for part in parts for runner in part.runners]
    entries = [entry for part in parts for entry in part.entries]
    runners.sort(key=lambda one: (one["modelId"], one["deviceRank"], one["runnerId"]))
    entries.sort(key=lambda one: (one["at"], one["nodeId"], one["deviceRank"]))
    return runners, entries


def clock_offset_s(part: TimelinePart, sent: datetime, received: datetime) -> tuple[float, float]:
    """How far the node's clock is ahead of ours, and the round trip without its own work."""
    there_s = (part.asked_at - sent).total_seconds()
    back_s = (received - part.answered_at).total_seconds()
    work_s = (part.answered_at - part.asked_at).total_seconds()
    round_trip_s = (received - sent).total_seconds() - work_s
    return (there_s - back_s) / 2, max(0.0, round_trip_s)
