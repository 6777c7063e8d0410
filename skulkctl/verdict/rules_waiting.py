"""Rules for ranks that wait for something that is known: files, memory, each other, a shutdown.

A wait with a known reason is never a hang; only ranks that all wait to be started are, in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.verdict.drafts import NEVER, Draft, clause
from skulkctl.verdict.findings import Limits
from skulkctl.verdict.ranks import ENDING, Group, Rank
from skulkctl.verdict.waits import FILES, MEMORY, RANKS, waiting_text

if TYPE_CHECKING:
    from skulkd.wire.timeline import RunnerWaiting

_MOST_SENTENCES = 3


def waits_for_files(group: Group, limits: Limits) -> Draft | None:
    """FILES: model files are on their way to the node of a rank."""
    del limits
    return _known_wait(group, FILES, "FILES", "model files")


def waits_for_memory(group: Group, limits: Limits) -> Draft | None:
    """MEMORY: another model's memory has to be freed first."""
    del limits
    return _known_wait(group, MEMORY, "MEMORY", "free memory")


def waits_to_start(group: Group, limits: Limits) -> Draft | None:
    """START: every rank has its files and memory, and some are not started."""
    del limits
    found = _waiting(group, RANKS)
    if not found:
        return None
    ranks = tuple(rank for rank, _ in found)
    singular = "has its files and waits for the group to start"
    plural = "have their files and wait for the group to start"
    sentences = (
        f"{clause(ranks, singular, plural)}.",
        "The node of rank 0 starts all ranks together, as soon as it has heard of each.",
    )
    since_s = min(waiting.seconds for _, waiting in found)
    steps = (f"skulkctl wait {group.short}", f"skulkctl restart --instance {group.short}")
    return Draft("START", sentences, since_s=since_s, waits_for=RANKS, next=steps)


def shuts_down(group: Group, limits: Limits) -> Draft | None:
    """DRAIN: every rank is on its way out and finishes what it does."""
    del limits
    if any(rank.status not in ENDING for rank in group.ranks):
        return None
    sentences = (f"{clause(group.ranks, 'is', 'are')} shutting down.",)
    steps = (f"skulkctl wait {group.short} --for deleted",)
    return Draft("DRAIN", sentences, hang_s=NEVER, waits_for="shutdown", next=steps)


def _known_wait(group: Group, reason: str, rule: str, what: str) -> Draft | None:
    found = _waiting(group, reason)
    if not found:
        return None
    sentences = [
        f"{rank.title} waits for {what}{_colon(waiting)}."
        for rank, waiting in found[:_MOST_SENTENCES]
    ]
    late = tuple(rank for rank, _ in found)
    rest = [rank for rank in group.ranks if rank not in late]
    if rest:
        sentences.append(
            f"{clause(rest, 'waits', 'wait')} for {'it' if len(late) == 1 else 'them'}."
        )
    return Draft(
        rule,
        tuple(sentences),
        late,
        hang_s=NEVER,
        since_s=max(waiting.seconds for _, waiting in found),
        waits_for=reason,
        next=(f"skulkctl wait {group.short}", "skulkctl storage"),
    )


def _waiting(group: Group, reason: str) -> list[tuple[Rank, RunnerWaiting]]:
    return [
        (rank, rank.waiting)
        for rank in group.ranks
        if rank.waiting is not None and rank.waiting.reason == reason
    ]


def _colon(waiting: RunnerWaiting) -> str:
    progress = waiting_text(waiting)
    return f": {progress}" if progress else ""


RULES = (waits_for_files, waits_for_memory, waits_to_start)
