"""Traces as files in Chrome's trace format, one per task, which Perfetto opens as they are.

Parts of several ranks are merged as they come; a trace that lacks ranks is kept and marked. A
damaged file is skipped, never a failure of the list. Blocking.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from skulkd.wire.ids import CommandId, NodeId, TaskId
from skulkd.wire.tracing import UNFINISHED, TraceEventResponse

_log = logging.getLogger(__name__)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_OURS = "skulk"


class BadTraceId(ValueError):
    """The id cannot be that of a trace."""


class NoSuchTrace(LookupError):
    """No readable file of this task."""


@dataclass(frozen=True, slots=True)
class Trace:
    """All that one file holds."""

    task_id: TaskId
    created_at: str
    file_size: int
    events: list[TraceEventResponse]
    command_id: CommandId | None = None
    world_size: int = 1

    @property
    def ranks(self) -> list[int]:
        return sorted({event.rank for event in self.events})

    @property
    def unfinished(self) -> list[int]:
        """Ranks of which there is only what they sent while they were at work."""
        return sorted({event.rank for event in self.events if event.name == UNFINISHED})

    @property
    def partial(self) -> bool:
        """Whether a rank's part never came, or is only what it had sent before it was killed."""
        return bool(self.unfinished) or len(self.ranks) < self.world_size

    @property
    def nodes(self) -> list[NodeId]:
        """Who took part, in the order of first appearance."""
        known = (event.node_id for event in self.events if event.node_id is not None)
        return list(dict.fromkeys(known))


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank measured."""

    task_id: TaskId
    rank: int
    events: Sequence[TraceEventResponse]
    command_id: CommandId | None = None
    world_size: int = 1


class TraceFiles:
    """The traces of this node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, part: Part) -> None:
        """Merge one rank's part; the same rank again replaces what it said before."""
        path = self.path(part.task_id)
        try:
            before = self.read(part.task_id)
        except NoSuchTrace:
            before = Trace(part.task_id, "", 0, [])
        known = [event for event in before.events if event.rank == part.rank]
        if _cut_off(part.events) and len(known) >= len(part.events):
            return  # overtaken on its way by a later one
        kept = [event for event in before.events if event.rank != part.rank]
        merged = Trace(
            part.task_id,
            "",
            0,
            [*kept, *part.events],
            part.command_id or before.command_id,
            max(part.world_size, before.world_size),
        )
        self._directory.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".tmp")
        fresh.write_bytes(chrome_json(merged))
        fresh.replace(path)

    def path(self, task_id: str) -> Path:
        """Where the trace of this task is, or would be. Raises BadTraceId."""
        if _ID.fullmatch(task_id) is None:
            raise BadTraceId(f"not a task id: {task_id[:200]}")
        return self._directory / f"trace_{task_id}.json"

    def read(self, task_id: str) -> Trace:
        """Raises NoSuchTrace, also for a file that cannot be read, and BadTraceId."""
        return _read(self.path(task_id), TaskId(task_id))

    def every(self) -> list[Trace]:
        """All readable traces, the newest first."""
        found = []
        for path in self._directory.glob("trace_*.json"):
            try:
                found.append(_read(path, TaskId(path.stem.removeprefix("trace_"))))
            except NoSuchTrace as error:
                _log.warning("a trace is skipped: %s", error)
        return sorted(found, key=lambda trace: trace.created_at, reverse=True)

    def delete(self, task_ids: Iterable[str]) -> tuple[list[TaskId], list[TaskId]]:
        """Which were deleted, and which were not there. Raises BadTraceId before any is."""
        paths = [(TaskId(task_id), self.path(task_id)) for task_id in task_ids]
        deleted, missing = [], []
        for task_id, path in paths:
            try:
                path.unlink()
                deleted.append(task_id)
            except FileNotFoundError:
                missing.append(task_id)
        return deleted, missing

    def sweep(self, days: int, now_s: float) -> int:
        """Delete what is older; 0 days or less keeps everything. How many went."""
        if days <= 0:
            return 0
        gone = 0
        for path in self._directory.glob("trace_*.json"):
            try:
                if path.stat().st_mtime < now_s - days * 86_400:
                    path.unlink()
                    gone += 1
            except OSError as error:
                _log.warning("an old trace stays: %s: %s", path.name, error)
        return gone


def _cut_off(events: Iterable[TraceEventResponse]) -> bool:
    return any(event.name == UNFINISHED for event in events)


def chrome_json(trace: Trace) -> bytes:
    """The file's content."""
    rows: list[dict[str, Any]] = [_row(event) for event in trace.events]
    rows += [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": f"Rank {rank}"}}
        for rank in trace.ranks
    ]
    about = {
        "taskId": trace.task_id,
        "commandId": trace.command_id,
        "worldSize": trace.world_size,
        "ranks": trace.ranks,
        "partial": trace.partial,
    }
    return to_json({"traceEvents": rows, _OURS: about}, indent=2)


def _row(event: TraceEventResponse) -> dict[str, Any]:
    return {
        "name": event.name,
        "cat": event.category,
        "ph": "X",
        "ts": event.start_us,
        "dur": event.duration_us,
        "pid": 0,
        "tid": event.rank,
        "args": {
            "rank": event.rank,
            "node_id": event.node_id,
            "model_id": event.model_id,
            "task_kind": event.task_kind,
            "tags": event.tags,
            "attrs": event.attrs,
        },
    }


def _read(path: Path, task_id: TaskId) -> Trace:
    try:
        raw, facts = path.read_bytes(), path.stat()
        document = from_json(raw)
        events = [_event(row) for row in document["traceEvents"] if row.get("ph") != "M"]
        about = document.get(_OURS) or {}
        created = datetime.fromtimestamp(facts.st_mtime, UTC).isoformat(timespec="microseconds")
        size = int(about.get("worldSize") or len({event.rank for event in events}) or 1)
        return Trace(task_id, created, facts.st_size, events, about.get("commandId"), size)
    except FileNotFoundError:
        raise NoSuchTrace(f"Trace not found: {task_id}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoSuchTrace(f"{path.name} cannot be read: {type(error).__name__}") from error


def _event(row: dict[str, Any]) -> TraceEventResponse:
    args = row.get("args") or {}
    facts = {
        "name": row["name"],
        "start_us": int(row["ts"]),
        "duration_us": int(row.get("dur") or 0),
        "rank": int(args.get("rank", row.get("tid", 0))),
        "category": row.get("cat") or "unknown",
        "node_id": args.get("node_id"),
        "model_id": args.get("model_id"),
        "task_kind": args.get("task_kind"),
        "tags": args.get("tags") or [],
        "attrs": args.get("attrs") or {},
    }
    try:
        return TraceEventResponse(**facts)
    except ValidationError:
        # An unknown kind of task is no reason to lose the measurement.
        return TraceEventResponse(**{**facts, "task_kind": None})
