"""Where ranks disagree: the first recorded attribute whose value is not the same on all. Pure.

A desync often shows several collectives after it began, so the first difference says more than
the place where the ranks stand now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from skulkctl.verdict.ranks import Group, Rank
from skulkctl.verdict.waits import Wait
from skulkctl.views.read import Document, text

Difference = tuple[str, tuple[str, ...]]

NONE = "none"

# These belong to one rank, to one moment, or differ by design.
_OWN = frozenset(
    {
        "rank", "src", "dst", "shape", "elapsed_ms", "wait_seconds", "leading_dummies",
        "trailing_dummies", "mtp", "limit_s", "exit_code", "seconds", "port", "hit_ratio",
        "queue_depth",
    }
)  # fmt: skip


def first_difference(group: Group) -> Difference | None:
    """The earliest attribute that differs between the ranks, for the work they do now."""
    tables = [dict(_attributes(_current(rank, group.task_id))) for rank in group.ranks]
    if len(tables) < 2:
        return None
    order: dict[str, None] = {}
    for table in sorted(tables, key=len, reverse=True):
        order |= dict.fromkeys(table)
    for name in order:
        values = tuple(table.get(name, NONE) for table in tables)
        told = {value for value in values if value != NONE}
        # A rank that waits may still get there; one at rest was never told to.
        resting = any(
            value == NONE and rank.wait is Wait.REST
            for value, rank in zip(values, group.ranks, strict=True)
        )
        if len(told) > 1 or resting:
            return name, values
    return None


def _current(rank: Rank, task_id: str | None) -> Sequence[Document]:
    """Its entries since the work began that the group does now."""
    entries = rank.entries
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if entry.get("phase") == "idle":
            return entries[index + 1 :]
        if task_id is not None and entry.get("event") == "submit_text_generation":
            return entries[index:]
    return entries


def _attributes(entries: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """`step.attribute` and its last value, in the order of first appearance."""
    for entry in entries:
        attrs = entry.get("attrs")
        if not attrs or not isinstance(attrs, dict):
            continue
        event = entry.get("event")
        step = (entry.get("detail") or event) if event in ("enter", "exit") else event
        for name, value in attrs.items():
            if name not in _OWN:
                yield f"{step}.{name}", _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def values_of(rank: Rank, event: str, name: str) -> list[object]:
    """All values of one attribute in a rank's recorder, oldest first; event by its ending."""
    found = []
    for entry in rank.entries:
        attrs = entry.get("attrs")
        if isinstance(attrs, Mapping) and name in attrs:
            told = str(entry.get("event") or "")
            if told.endswith(event):
                found.append(attrs[name])
    return found


def usual_gap_s(rank: Rank) -> float:
    """The longest time between two entries of the phase that the rank is in now.

    A slow but healthy decode writes rarely; that is not a hang.
    """
    from skulkctl.units import parse_time

    longest = 0.0
    before: float | None = None
    for entry in rank.entries:
        if entry.get("phase") != rank.entry_phase:
            before = None
            continue
        moment = parse_time(text(entry, "at") or "")
        now = None if moment is None else moment.timestamp()
        if before is not None and now is not None:
            longest = max(longest, now - before)
        before = now
    return longest
