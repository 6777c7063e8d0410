"""Who waits on whom, drawn beside the lanes: one piece for each rank. Pure."""

from __future__ import annotations

from skulkctl.ui.lines import Piece, shorten
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.verdict.waits import Wait

_NARROW = 8


def waits_on(rank: Rank) -> str:
    """In a word or two, what this rank waits for."""
    if rank.is_frozen:
        return "frozen"
    if rank.waiting is not None:
        return rank.waiting.reason
    return {
        Wait.RECV: f"{rank.rank - 1} data",
        Wait.SEND: f"{rank.rank + 1} takes",
        Wait.GATHER: "gather",
        Wait.BARRIER: "barrier",
        Wait.AGREEMENT: "agree",
        Wait.PLANNER: "planner",
        Wait.LOCAL: "itself",
        Wait.STEP: "a step",
        Wait.AFTER: "itself",
        Wait.REST: "–",
    }[rank.wait]


def wait_graph(
    group: Group, culprit: int | None, victims: set[int], cells: int, *, is_problem: bool
) -> list[Piece]:
    """A trunk that leads from every waiting rank to the culprit; words only without one."""
    if cells <= 0:
        return [("", None)] * len(group.ranks)
    numbers = [rank.rank for rank in group.ranks]
    if culprit is None or culprit not in numbers:
        words = [waits_on(rank) for rank in group.ranks]
        return [(shorten(word, cells), "muted") for word in words]
    target = numbers.index(culprit)
    waiting = [
        position
        for position, rank in enumerate(group.ranks)
        if position != target
        and (rank.rank in victims or (not rank.works and rank.wait is not Wait.REST))
    ]
    top, bottom = min([target, *waiting]), max([target, *waiting])
    who = "all wait" if len(waiting) > 1 else "".join(f"{numbers[one]} waits" for one in waiting)
    pieces = [
        _piece(position, rank, target, waiting, (top, bottom), cells, who)
        for position, rank in enumerate(group.ranks)
    ]
    return pieces if is_problem else [(text, "waiting") for text, _ in pieces]


def _piece(
    position: int, rank: Rank, target: int, waiting: list[int], ends: tuple[int, int], cells: int,
    who: str,
) -> Piece:  # fmt: skip
    wide = cells > _NARROW
    if position == target:
        joint = _joint(position, ends, is_target=True) if waiting else "─"
        text = f"◀─{joint}─ {who} for {rank.rank}"
        return shorten(text if wide and waiting else f"◀─{joint}", cells), "problem"
    if position in waiting:
        text = f"──{_joint(position, ends)}"
        word = "in its step" if rank.wait is Wait.STEP else waits_on(rank)
        return shorten(f"{text}  {word}" if wide else text, cells), "attention"
    between = ends[0] < position < ends[1]
    text = "  │" if between else "   "
    return shorten(f"{text}  {waits_on(rank)}" if wide else text, cells), "muted"


def _joint(position: int, ends: tuple[int, int], is_target: bool = False) -> str:
    if ends[0] == ends[1]:
        return "─"
    if position == ends[0]:
        return "┐"
    if position == ends[1]:
        return "┘"
    return "┼" if is_target else "┤"
