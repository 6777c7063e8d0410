"""Questions that rules ask of flight recorders: what was recorded, how far it is, and where the
ranks disagree. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skulkctl.output.units import parse_time
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.verdict.waits import Wait

if TYPE_CHECKING:
    from skulkd.wire.timeline import TimelineEntry

Difference = tuple[str, tuple[str, ...]]
Value = str | int | float | bool | list[str]

NONE = "none"

SCHEDULE = (
    "task_submission",
    "task_agreement",
    "prompt_build",
    "vision_preprocess",
    "kv_cache_lookup",
    "prefill_barrier",
    "prefill_stream",
    "prefill_pipeline",
    "decode_barrier",
    "decode_wait_first_token",
    "decode_stream",
    "completion",
)
"""The phases of a request in their order."""

# These belong to one rank, to one moment, or differ by design.
_OWN = frozenset(
    {
        "rank", "src", "dst", "shape", "elapsed_ms", "wait_seconds", "leading_dummies",
        "trailing_dummies", "mtp", "limit_s", "exit_code", "seconds", "port", "hit_ratio",
        "queue_depth",
    }
)  # fmt: skip


def position(phase: str) -> int:
    """How far a request in this phase has come; -1 outside of requests."""
    return SCHEDULE.index(phase) if phase in SCHEDULE else -1


def progress(rank: Rank) -> int:
    """How far it has come with the request; the two ways to prefill are one position."""
    return position(rank.entry_phase.replace("prefill_stream", "prefill_pipeline"))


def has_recorded(rank: Rank, event: str, task_id: str | None) -> bool:
    """Whether it recorded this (with or without `batch_`) for the task, since it was last idle."""
    for name in (event, f"batch_{event}", event.removeprefix("batch_")):
        if name in rank.recent:
            owner = rank.recent[name]
            return task_id is None or owner is None or owner == task_id
    return False


def is_open(rank: Rank, detail: str) -> bool:
    """Whether it has entered this step and not left it."""
    for entry in reversed(rank.entries):
        if entry.phase == "idle":
            return False
        if entry.detail == detail:
            return entry.event == "enter"
    return False


def values_of(rank: Rank, event: str, name: str) -> list[Value]:
    """All values of one attribute in a rank's recorder, oldest first; event by its ending."""
    return [
        entry.attrs[name]
        for entry in rank.entries
        if name in entry.attrs and entry.event.endswith(event)
    ]


def differs_twice(rank: Rank) -> bool:
    """Whether it found twice in a row that the ranks hold different tasks."""
    counts = values_of(rank, "tasks_agreed", "different_count")[-2:]
    return len(counts) == 2 and all(isinstance(count, int) and count > 0 for count in counts)


def odd_rank(group: Group, values: dict[int, list[Value]]) -> Rank | None:
    """The one rank whose value no other rank has; the lowest value when they are two."""
    known = {rank: value[0] for rank, value in values.items() if value}
    if len(known) != len(group.ranks) or len({str(value) for value in known.values()}) != 2:
        return None
    all_values = list(known.values())
    lonely = [rank for rank, value in known.items() if all_values.count(value) == 1]
    if len(lonely) == 2:
        lonely = [min(lonely, key=lambda rank: float(str(known[rank])))]
    found = [rank for rank in group.ranks if rank.rank in lonely]
    return found[0] if len(found) == 1 else None


def longest_pause_s(rank: Rank) -> float:
    """The longest time between two entries of the phase that the rank is in now.

    A slow but healthy decode writes rarely; that is not a hang.
    """
    longest = 0.0
    before: float | None = None
    for entry in rank.entries:
        if entry.phase != rank.entry_phase:
            before = None
            continue
        moment = parse_time(entry.at)
        now = None if moment is None else moment.timestamp()
        if before is not None and now is not None:
            longest = max(longest, now - before)
        before = now
    return longest


def first_difference(group: Group) -> Difference | None:
    """The earliest attribute that differs between the ranks, for the work they do now.

    A desync often shows several collectives after it began, so the first difference says more than
    the place where the ranks are now.
    """
    tables = [dict(_attributes(_current(rank, group.task_id))) for rank in group.ranks]
    if len(tables) < 2:
        return None
    order: dict[str, None] = {}
    for table in sorted(tables, key=len, reverse=True):
        order |= dict.fromkeys(table)
    for name in order:
        values = tuple(table.get(name, NONE) for table in tables)
        known = {value for value in values if value != NONE}
        # A rank that waits may still get there; one at rest never received the work.
        resting = any(
            value == NONE and rank.wait is Wait.REST
            for value, rank in zip(values, group.ranks, strict=True)
        )
        if len(known) > 1 or resting:
            return name, values
    return None


def _current(rank: Rank, task_id: str | None) -> Sequence[TimelineEntry]:
    """Its entries since the work began that the group does now."""
    entries = rank.entries
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if entry.phase == "idle":
            return entries[index + 1 :]
        if task_id is not None and entry.event == "submit_text_generation":
            return entries[index:]
    return entries


def _attributes(entries: Sequence[TimelineEntry]) -> Iterator[tuple[str, str]]:
    """`step.attribute` and its last value, in the order of first appearance."""
    for entry in entries:
        if not entry.attrs:
            continue
        step = (entry.detail or entry.event) if entry.event in ("enter", "exit") else entry.event
        for name, value in entry.attrs.items():
            if name not in _OWN:
                yield f"{step}.{name}", _value_text(value)


def _value_text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(value) if isinstance(value, list) else str(value)
