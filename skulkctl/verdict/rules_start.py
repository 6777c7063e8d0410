"""Rules for instances that are not ready yet: created, connecting, loading, warming up.

Ids are those of the signature catalogue in the runbook.
"""

from __future__ import annotations

from skulkctl.verdict.drafts import NEVER, Draft, clause, eval_deadline, step_deadline, where
from skulkctl.verdict.findings import Limits
from skulkctl.verdict.ranks import Group, suspect
from skulkctl.verdict.waits import Wait


def never_reported(group: Group, limits: Limits) -> Draft | None:
    """D17: the process lives, and has recorded nothing since it was made."""
    silent = tuple(
        rank
        for rank in group.ranks
        if rank.alive and rank.idle_s is None and not rank.entries and rank.status == "RunnerIdle"
    )
    if not silent:
        return None
    sentences = clause(silent, "has", "have") + " recorded nothing since the process was started."
    since_s = max(rank.in_phase_s for rank in silent)
    deadlines = step_deadline(silent, limits.first_report_s, since_s, "first report")
    return Draft("D17", (sentences,), silent, deadlines=deadlines)


def not_connecting(group: Group, limits: Limits) -> Draft | None:
    """D16: all but the last rank connect; the last one joins when it is told to."""
    *before, last = group.ranks
    if not before or last.status != "RunnerIdle":
        return None
    if any(rank.status != "RunnerConnecting" for rank in before):
        return None
    sentences = (
        f"{clause(before, 'is', 'are')} connecting and {last} has not begun.",
        "The last rank goes last by design; it should follow within seconds.",
    )
    since_s = min(rank.still_s for rank in before)
    deadlines = step_deadline(before, limits.connect_s, since_s, "connect")
    return Draft("D16", sentences, (last,), deadlines=deadlines)


def handshake(group: Group, limits: Limits) -> Draft | None:
    """D15: every rank is inside the group's handshake."""
    if group.world_size < 2:
        return None
    if any(
        rank.status != "RunnerConnecting" and rank.entry_phase != "connect_group"
        for rank in group.ranks
    ):
        return None
    if any(rank.event == "exit" for rank in group.ranks):
        return None
    absent = suspect(group.ranks)
    sentences = (
        "Every rank waits inside the group's handshake.",
        "A stale socket, a wrong address or a link that is down keeps them apart.",
    )
    if absent is not None:
        others = [rank for rank in group.ranks if rank is not absent]
        sentences = (
            f"{absent.title} has begun to connect and takes no part in the handshake.",
            f"{clause(others, 'waits', 'wait')} for it.",
        )
    deadlines = step_deadline(group.ranks, limits.connect_s, group.still_s, "connect")
    culprits = () if absent is None else (absent,)
    return Draft("D15", sentences, culprits, deadlines=deadlines, next=_again(group))


def downloads(group: Group, limits: Limits) -> Draft | None:
    """D18: connected, and nobody loads, because files are missing somewhere."""
    del limits
    if group.world_size < 2 or any(rank.status != "RunnerConnected" for rank in group.ranks):
        return None
    sentences = ("Every rank is connected and waits for model files to be on all of its nodes.",)
    return Draft("D18", sentences, hang_s=NEVER, next=("skulkctl status", "skulkctl storage"))


def loading(group: Group, limits: Limits) -> Draft | None:
    """Weights are read. Progress shows in the status, not in the recorder, so be patient."""
    busy = tuple(rank for rank in group.ranks if rank.status == "RunnerLoading")
    if not busy:
        return None
    sentences = (f"{clause(busy, 'is', 'are')} loading the model.",)
    return Draft("LOAD", sentences, busy, hang_s=limits.load_s, next=("skulkctl instances",))


def rank_zero_late(group: Group, limits: Limits) -> Draft | None:
    """D13: the others warm up and wait in the first barrier; rank 0 was never told to."""
    zero, *others = group.ranks
    if not others or zero.rank != 0 or zero.status != "RunnerLoaded":
        return None
    waiting = [rank for rank in others if rank.status == "RunnerWarmingUp"]
    if not waiting:
        return None
    sentences = (
        f"{clause(waiting, 'waits', 'wait')} in warm-up for {zero}, which has loaded "
        "and was never told to warm up.",
    )
    return Draft("D13", sentences, (zero,), deadlines=eval_deadline(waiting, limits))


def warmup_wedge(group: Group, limits: Limits) -> Draft | None:
    """D14: one rank makes no progress in its warm-up, the others wait for it."""
    warming = [rank for rank in group.ranks if rank.status == "RunnerWarmingUp"]
    if not warming:
        return None
    culprit = suspect(warming)
    if culprit is None:
        return None
    waiting = [rank for rank in warming if rank is not culprit]
    sentences = [f"{culprit.title} makes no progress in its warm-up: {where(culprit)}."]
    if waiting:
        sentences.append(f"{clause(waiting, 'waits', 'wait')} for it.")
    deadlines = eval_deadline(waiting, limits)
    deadlines += step_deadline((culprit,), limits.warmup_s, culprit.still_s, "warm-up")
    first = f"skulkctl capture {group.short}/{culprit.rank}"
    # A warm-up is no request: it cannot be cancelled.
    steps = (first, f"skulkctl delete {group.short}")
    return Draft("D14", tuple(sentences), (culprit,), deadlines=deadlines, next=steps)


def warmup_together(group: Group, limits: Limits) -> Draft | None:
    """D14 without one rank to blame: all are inside the same step of warm-up."""
    if any(rank.status != "RunnerWarmingUp" for rank in group.ranks):
        return None
    computing = all(rank.works for rank in group.ranks)
    if not computing and any(rank.wait not in _TOGETHER for rank in group.ranks):
        return None
    what = "makes no progress" if computing else "waits for the others"
    sentences = (f"Every rank {what} in warm-up: a rank is frozen, a GPU wedged or a link down.",)
    deadlines = eval_deadline(group.ranks, limits)
    deadlines += step_deadline(group.ranks, limits.warmup_s, group.still_s, "warm-up")
    return Draft("D14", sentences, deadlines=deadlines, next=_again(group))


_TOGETHER = (Wait.BARRIER, Wait.AGREEMENT, Wait.GATHER)


def _again(group: Group) -> tuple[str, ...]:
    return (f"skulkctl capture {group.short}", f"skulkctl delete {group.short}", "skulkctl nodes")


RULES = (
    never_reported,
    not_connecting,
    handshake,
    downloads,
    loading,
    rank_zero_late,
    warmup_wedge,
    warmup_together,
)
