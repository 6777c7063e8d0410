"""Small questions that rules ask of recorders: what was recorded, what is open, how far it is."""

from __future__ import annotations

from skulkctl.verdict.compare import values_of
from skulkctl.verdict.ranks import Group, Rank

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


def place_of(phase: str) -> int:
    return SCHEDULE.index(phase) if phase in SCHEDULE else -1


def place(rank: Rank) -> int:
    """How far it has come with the request; the two ways to prefill are one place."""
    return place_of(rank.entry_phase.replace("prefill_stream", "prefill_pipeline"))


def low(told: str) -> str:
    return told[0].lower() + told[1:]


def look_at_links(group: Group) -> tuple[str, ...]:
    return (f"skulkctl capture {group.short}", "skulkctl nodes -o wide")


def has(rank: Rank, event: str) -> bool:
    return event in rank.events


def has_now(rank: Rank, event: str, task_id: str | None) -> bool:
    """Whether it recorded this (with or without `batch_`) for the task, since it was last idle."""
    for name in (event, f"batch_{event}", event.removeprefix("batch_")):
        if name in rank.recent:
            owner = rank.recent[name]
            return task_id is None or owner is None or owner == task_id
    return False


def is_open(rank: Rank, detail: str) -> bool:
    """Whether it has entered this step and not left it."""
    for entry in reversed(rank.entries):
        if entry.get("phase") == "idle":
            return False
        if entry.get("detail") == detail:
            return entry.get("event") == "enter"
    return False


def differs_twice(rank: Rank) -> bool:
    counts = values_of(rank, "tasks_agreed", "different_count")[-2:]
    return len(counts) == 2 and all(isinstance(one, int) and one > 0 for one in counts)


def odd_one(group: Group, values: dict[int, list[object]]) -> Rank | None:
    """The one rank whose value no other rank has; the lowest value when they are two."""
    known = {rank: value[0] for rank, value in values.items() if value}
    if len(known) != len(group.ranks) or len(set(known.values())) != 2:
        return None
    told = list(known.values())
    lonely = [rank for rank, value in known.items() if told.count(value) == 1]
    if len(lonely) == 2:
        lonely = [min(lonely, key=lambda rank: float(str(known[rank])))]
    found = [rank for rank in group.ranks if rank.rank in lonely]
    return found[0] if len(found) == 1 else None
