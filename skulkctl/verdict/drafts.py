"""What a rule finds, before it is known how long that has lasted; and words that rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from skulkctl.verdict.findings import Deadline, Limits, ranks_text
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.verdict.waits import Wait

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Draft:
    """A signature that matches. `hang_s` is how long it may last before it is a hang."""

    rule: str
    sentences: tuple[str, ...]
    culprits: tuple[Rank, ...] = ()
    hang_s: float | None = None
    """None: the usual limit."""
    since_s: float | None = None
    """How long it has lasted; None: since any rank moved."""
    deadlines: tuple[Deadline, ...] = ()
    waits_for: str | None = None
    """A reason that is known, not concluded from silence: it is shown at once."""
    next: tuple[str, ...] = ()
    """Commands; empty: capture the culprit, then cancel the task."""


Rule = Callable[[Group, Limits], Draft | None]


def numbers(ranks: Iterable[Rank]) -> tuple[int, ...]:
    return tuple(rank.rank for rank in ranks)


def clause(ranks: Iterable[Rank], singular: str, plural: str) -> str:
    """`Rank 2 waits` or `Ranks 2 and 3 wait`, for the beginning of a sentence."""
    return upper_first(phrase(ranks, singular, plural))


def phrase(ranks: Iterable[Rank], singular: str, plural: str) -> str:
    """The same for the middle of a sentence."""
    those = numbers(ranks)
    return f"{ranks_text(those)} {singular if len(those) <= 1 else plural}"


def upper_first(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def where(rank: Rank) -> str:
    """`inside prefill_mx_barrier`, `after prompt_tokenized`."""
    verb = "inside" if rank.event == "enter" else "after"
    return f"{verb} {rank.at or rank.entry_phase}"


def eval_deadline(ranks: Iterable[Rank], limits: Limits) -> tuple[Deadline, ...]:
    """The collective timeout of ranks that wait in a step which has one."""
    those = [
        rank
        for rank in ranks
        if rank.wait in (Wait.RECV, Wait.BARRIER, Wait.GATHER, Wait.SEND)
        or rank.at.startswith("pipeline_")
    ]
    if not those:
        return ()
    left_s = min(limits.eval_s - rank.still_s for rank in those)
    return (Deadline(numbers(those), left_s, f"{limits.eval_s:g} s eval limit"),)


def agreement_deadline(ranks: Iterable[Rank], limits: Limits) -> tuple[Deadline, ...]:
    """The timeout of ranks that wait for an agreement, where there is one."""
    those = list(ranks)
    if limits.agreement_s is None or not those:
        return ()
    left_s = min(limits.agreement_s - rank.still_s for rank in those)
    return (Deadline(numbers(those), left_s, f"{limits.agreement_s:g} s agreement limit"),)


def request_deadline(group: Group, limits: Limits) -> tuple[Deadline, ...]:
    """The timeout of a request, whatever step its ranks are in; not every node has one."""
    if limits.progress_s is None:
        return ()
    busy = [rank for rank in group.ranks if rank.status == "RunnerRunning"]
    # A process that does not run cannot end itself; its supervisor waits a little longer.
    awake = [rank for rank in busy if not rank.is_frozen]
    if awake:
        left_s = min(limits.eval_s - rank.still_s for rank in awake)
        return (Deadline(numbers(awake), left_s, f"{limits.eval_s:g} s eval limit"),)
    leader = [rank for rank in busy if rank.rank == 0]
    since_s = leader[0].still_s if leader else 0.0
    return step_deadline(leader, limits.progress_s, since_s, "progress")


def step_deadline(
    ranks: Iterable[Rank], limit_s: float, since_s: float, what: str
) -> tuple[Deadline, ...]:
    those = numbers(ranks)
    return (Deadline(those, limit_s - since_s, f"{limit_s:g} s {what} limit"),) if those else ()
