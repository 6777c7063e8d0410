"""Lanes of time: what each rank did in each cell, and where ranks agree and move. Pure.

A cell holds a phase's letter when the phase was entered in it, else a fill that says what kind
of time passes. Entries are shifted by the measured skew of their node's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from skulkctl.output.units import parse_time
from skulkctl.ui.alphabet import LETTERS, WAIT, WRAPPED, family
from skulkctl.verdict.ranks import SUPERVISOR_MARK, Group, Rank
from skulkctl.verdict.waits import Wait, is_fresh, recorded_wait

if TYPE_CHECKING:
    from skulkd.wire.timeline import TimelineEntry

RECORDER_SIZE = 128
STILL_S = 2.0
"""A pulse comes every second: a rank with two equal ones does not move."""


@dataclass(frozen=True, slots=True)
class Window:
    """From when to when, in seconds since the epoch, and in how many cells."""

    start_s: float
    end_s: float
    cells: int

    @property
    def cell_s(self) -> float:
        return (self.end_s - self.start_s) / self.cells

    def edges(self) -> Iterator[tuple[float, float]]:
        for number in range(self.cells):
            start_s = self.start_s + number * self.cell_s
            yield start_s, start_s + self.cell_s


@dataclass(frozen=True, slots=True)
class Mark:
    """One entry at its moment, by our clock."""

    at_s: float
    entry: TimelineEntry

    @property
    def is_supervisors(self) -> bool:
        """Recorded by the supervisor; the runner is where it was."""
        return self.entry.event == SUPERVISOR_MARK


@dataclass(frozen=True, slots=True)
class Lane:
    """The cells of one rank."""

    cells: str
    phases: tuple[str | None, ...]
    """The phase at the end of each cell; None where nothing is known."""
    moved: tuple[bool, ...]


_MARKS: WeakKeyDictionary[Rank, tuple[float, Sequence[Mark]]] = WeakKeyDictionary()
_SPANS: WeakKeyDictionary[Rank, tuple[tuple[float, bool], Sequence[Span]]] = WeakKeyDictionary()
"""Every key draws the same entries again. A rank belongs to one answer of the daemon, and what was
made of it goes with it."""


def marks_of(rank: Rank, skews: Mapping[str, float]) -> Sequence[Mark]:
    """Its entries in time, oldest first."""
    skew_s = skews.get(rank.node_id, 0.0)
    known = _MARKS.get(rank)
    if known is None or known[0] != skew_s:
        known = _MARKS[rank] = skew_s, _marks(rank, skew_s)
    return known[1]


def _marks(rank: Rank, skew_s: float) -> Sequence[Mark]:
    moments = ((_seconds(entry.at), entry) for entry in rank.entries)
    return tuple(Mark(at_s - skew_s, entry) for at_s, entry in moments if at_s is not None)


@lru_cache(maxsize=65_536)
def _seconds(at: str) -> float | None:
    """Since the epoch. The next answer has nearly the same entries, so they are parsed once."""
    moment = parse_time(at)
    return None if moment is None else moment.timestamp()


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """From one entry of a rank to the next: what it did, and what that means."""

    start_s: float
    end_s: float
    family: str
    entry: TimelineEntry
    wait: Wait


def spans_of(
    rank: Rank, marks: Sequence[Mark], now_s: float, *, is_victim: bool = False
) -> Sequence[Span]:
    """What this rank did, piece by piece, up to now; the pulse tells the newest piece.

    A rank inside a step computes or waits, which it cannot tell; the verdict knows the victims.
    """
    key = now_s, is_victim
    known = _SPANS.get(rank)
    if known is None or known[0] != key:
        known = _SPANS[rank] = key, _spans(rank, marks, now_s, is_victim)
    return known[1]


def _spans(rank: Rank, marks: Sequence[Mark], now_s: float, is_victim: bool) -> Sequence[Span]:
    own = [mark for mark in marks if not mark.is_supervisors]
    ends = [*(mark.at_s for mark in own[1:]), max(now_s, own[-1].at_s)] if own else []
    spans = []
    for mark, end_s in zip(own, ends, strict=True):
        status = rank.status if mark.entry is rank.last else "RunnerRunning"
        wait = recorded_wait(mark.entry, status, rank.phase)
        spans.append(Span(mark.at_s, end_s, family(wait, mark.entry.phase), mark.entry, wait))
    last_s = spans[-1].start_s if spans else now_s
    still_since_s = max(last_s, _still_since(rank, now_s))
    if spans and still_since_s < spans[-1].end_s:
        last = spans[-1]
        newest = WAIT if is_victim else family(rank.wait, last.entry.phase)
        spans[-1:] = [
            replace(last, end_s=still_since_s),
            Span(still_since_s, last.end_s, newest, last.entry, rank.wait),
        ]
    return spans


def span_at(spans: Sequence[Span], at_s: float) -> Span | None:
    """What was going on at that moment."""
    index = bisect_right(spans, at_s, key=lambda span: span.start_s) - 1
    return spans[index] if index >= 0 and at_s <= spans[index].end_s else None


def lane_of(rank: Rank, marks: Sequence[Mark], window: Window, now_s: float) -> Lane:
    """What this rank did in each cell of the window; the pulse tells the newest ones."""
    cells, phases, moved = [], [], []
    index = 0
    last: TimelineEntry | None = None
    phase: str | None = None
    full = len(marks) >= RECORDER_SIZE
    still_since_s = _still_since(rank, now_s)
    for _, end_s in window.edges():
        letter, has_moved = None, False
        while index < len(marks) and marks[index].at_s < end_s:
            mark = marks[index]
            index += 1
            within = mark.at_s >= end_s - window.cell_s
            has_moved = has_moved or within
            if mark.is_supervisors:
                letter = LETTERS["cancel_requested"] if within else letter
                continue
            entered = mark.entry.phase
            if entered != phase and within:
                letter = LETTERS.get(entered, "?")
            last, phase = mark.entry, entered
        fill = rank.wait.value if end_s > still_since_s else _fill(rank, last, full)
        cells.append(letter or fill)
        phases.append(phase)
        moved.append(has_moved)
    return Lane("".join(cells), tuple(phases), tuple(moved))


def _still_since(rank: Rank, now_s: float) -> float:
    """Since when its pulse has been the same; a rank that moves is drawn by its entries."""
    live = rank.live
    if live is None or not is_fresh(live) or live.still_seconds < STILL_S:
        return float("inf")
    return now_s - live.still_seconds


def _fill(rank: Rank, last: TimelineEntry | None, full: bool) -> str:
    if last is None:
        return WRAPPED if full else " "
    # The status is of now; for the past only its newest entry may use it.
    status = rank.status if last is rank.last else "RunnerRunning"
    return recorded_wait(last, status, rank.phase).value


def agree_ruler(lanes: Sequence[Lane], window: Window) -> str:
    """`=` where every rank is in the same phase, `x` where not, blank where one is unknown."""
    cells = []
    for number in range(window.cells):
        phases = {lane.phases[number] for lane in lanes}
        cells.append(" " if None in phases else "=" if len(phases) == 1 else "x")
    return "".join(cells)


def moved_ruler(lanes: Sequence[Lane], window: Window) -> str:
    """`+` where any rank recorded something new, `-` where none did."""
    return "".join(
        "+" if any(lane.moved[number] for lane in lanes) else "-" for number in range(window.cells)
    )


def differences(group: Group, skews: Mapping[str, float]) -> list[tuple[float, str]]:
    """The moments at which ranks that agreed begin to differ, with what each then does."""
    marks = sorted(
        (mark.at_s, position, mark.entry.phase)
        for position, rank in enumerate(group.ranks)
        for mark in marks_of(rank, skews)
        if not mark.is_supervisors
    )
    now: dict[int, str] = {}
    found: list[tuple[float, str]] = []
    agreed = True
    for at_s, position, phase in marks:
        now[position] = phase
        if len(now) < len(group.ranks):
            continue
        same = len(set(now.values())) == 1
        if agreed and not same:
            phases = (f"r{rank.rank} {now[place]}" for place, rank in enumerate(group.ranks))
            found.append((at_s, "  ".join(phases)))
        agreed = same
    return found
