"""Speeds that flight recorders tell: tokens per second, time to the first token. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skulkctl.placement.instances import OPEN
from skulkctl.placement.requests import request_items
from skulkctl.ui.lanes import marks_of
from skulkctl.verdict.ranks import Group, Rank

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkctl.ui.snapshot import Snapshot

WINDOW_S = 10.0
"""Tokens per second are those of the last seconds."""
_POINTS = 5
"""From so many progress entries, at most, a speed is made."""


def tokens_per_second(rank: Rank, skews: Mapping[str, float], now_s: float) -> float | None:
    """How fast this rank decodes, by its own progress entries; None when it does not."""
    by_task: dict[str | None, list[tuple[float, int]]] = {}
    for mark in reversed(marks_of(rank, skews)):
        is_old = now_s - mark.at_s > WINDOW_S
        if is_old and all(len(points) == _POINTS for points in by_task.values()):
            break  # most of a full recorder is older
        points = by_task.get(mark.entry.task_id, [])
        tokens = mark.entry.attrs.get("completion_tokens")
        if mark.entry.event != "decode_token_progress" or not isinstance(tokens, int):
            continue
        if len(points) < _POINTS and (points or not is_old):
            by_task.setdefault(mark.entry.task_id, points).append((mark.at_s, tokens))
    speeds = [
        (points[0][1] - points[-1][1]) / (points[0][0] - points[-1][0])
        for points in by_task.values()
        if points[0][0] > points[-1][0]
    ]
    return sum(speeds) if speeds else None


def first_token_times(rank: Rank) -> list[float]:
    """Seconds from the submission of each request to its first token, as far as recorded."""
    begun: dict[str | None, float] = {}
    found: list[float] = []
    for mark in marks_of(rank, {}):
        task_id = mark.entry.task_id
        if mark.entry.phase == "task_submission":
            begun.setdefault(task_id, mark.at_s)
        elif mark.entry.event.endswith("first_token") and task_id in begun:
            found.append(mark.at_s - begun.pop(task_id))
    return found


def memory_points(rank: Rank) -> list[float]:
    """MLX memory of this rank over what its recorder keeps, in bytes; oldest first."""
    readings = [entry.mlx_memory for entry in rank.entries if entry.mlx_memory is not None]
    readings += [rank.runner.last_mlx_memory] if rank.runner.last_mlx_memory else []
    return [float(reading.active.in_bytes) for reading in readings if reading.active is not None]


def model_bytes(rank: Rank) -> int:
    """What MLX holds for this rank: in use, and cached for later."""
    memory = rank.runner.last_mlx_memory
    parts = [] if memory is None else [memory.active, memory.cache]
    return sum(part.in_bytes for part in parts if part is not None)


def total_speed(snapshot: Snapshot, state: ClusterState) -> float | None:
    """What rank 0 of each instance measures; None while work goes on and nobody measures it."""
    known = [
        speed for group in snapshot.groups if (speed := group_speed(snapshot, group)) is not None
    ]
    return None if not known and _is_busy(snapshot.groups, state) else sum(known)


def group_speed(snapshot: Snapshot, group: Group) -> float | None:
    """Tokens per second of an instance."""
    if not group.ranks:
        return None
    return tokens_per_second(group.ranks[0], snapshot.skews, snapshot.now_s)


def _is_busy(groups: Sequence[Group], state: ClusterState) -> bool:
    if any(task["status"] in OPEN for task in request_items(state)):
        return True
    return any(rank.status == "RunnerRunning" for group in groups for rank in group.ranks)
