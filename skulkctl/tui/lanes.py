"""Lanes of time: what each rank did in each cell, and where ranks agree and move. Pure.

A cell holds a phase's letter when the phase was entered in it, else a fill that says what kind
of time passes. Entries are shifted by the measured skew of their node's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from skulkctl.tui.alphabet import LETTERS, WRAPPED
from skulkctl.units import parse_time
from skulkctl.verdict.ranks import SUPERVISOR_MARK, Group, Rank
from skulkctl.verdict.waits import wait_of
from skulkctl.views.read import Document, text

RECORDER_SIZE = 128
STANDS_S = 2.0
"""A pulse comes every second: two that are the same make a rank that stands still."""


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
    entry: Document

    @property
    def is_order(self) -> bool:
        """A mark of the supervisor on top; the runner is where it was."""
        return self.entry.get("event") == SUPERVISOR_MARK


@dataclass(frozen=True, slots=True)
class Lane:
    """The cells of one rank."""

    cells: str
    phases: tuple[str | None, ...]
    """The phase at the end of each cell; None where nothing is known."""
    moved: tuple[bool, ...]


def marks_of(rank: Rank, skews: Mapping[str, float]) -> list[Mark]:
    """Its entries in time, oldest first."""
    skew_s = skews.get(rank.node_id, 0.0)
    found = []
    for entry in rank.entries:
        moment = parse_time(text(entry, "at") or "")
        if moment is not None:
            found.append(Mark(moment.timestamp() - skew_s, entry))
    return found


def lane_of(rank: Rank, marks: Sequence[Mark], window: Window, now_s: float) -> Lane:
    """What this rank did in each cell of the window; the pulse tells the newest ones."""
    cells, phases, moved = [], [], []
    index, last, phase = 0, None, None
    full = len(marks) >= RECORDER_SIZE
    stands_s = _stands_since(rank, now_s)
    for _, end_s in window.edges():
        letter, news = None, False
        while index < len(marks) and marks[index].at_s < end_s:
            mark = marks[index]
            index += 1
            within = mark.at_s >= end_s - window.cell_s
            news = news or within
            if mark.is_order:
                letter = LETTERS["cancel_requested"] if within else letter
                continue
            entered = text(mark.entry, "phase")
            if entered != phase and within:
                letter = LETTERS.get(entered or "", "?")
            last, phase = mark.entry, entered
        told = rank.wait.value if end_s > stands_s else _fill(rank, last, full)
        cells.append(letter or told)
        phases.append(phase)
        moved.append(news)
    return Lane("".join(cells), tuple(phases), tuple(moved))


def _stands_since(rank: Rank, now_s: float) -> float:
    """Since when its pulse has been the same; a rank that moves is drawn by its entries."""
    live = rank.live
    if live is None or not live.fresh or live.still_s < STANDS_S:
        return float("inf")
    return now_s - live.still_s


def _fill(rank: Rank, last: Document | None, full: bool) -> str:
    if last is None:
        return WRAPPED if full else " "
    # The status is of now; for the past only its newest entry may use it.
    status = rank.status if last is rank.last else "RunnerRunning"
    return wait_of(last, status, rank.phase).value


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
        (mark.at_s, position, text(mark.entry, "phase"))
        for position, rank in enumerate(group.ranks)
        for mark in marks_of(rank, skews)
        if not mark.is_order
    )
    now: dict[int, str | None] = {}
    found: list[tuple[float, str]] = []
    agreed = True
    for at_s, position, phase in marks:
        now[position] = phase
        if len(now) < len(group.ranks):
            continue
        same = len(set(now.values())) == 1
        if agreed and not same:
            told = "  ".join(f"r{rank.rank} {now[place]}" for place, rank in enumerate(group.ranks))
            found.append((at_s, told))
        agreed = same
    return found
