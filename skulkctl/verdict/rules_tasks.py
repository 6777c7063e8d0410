"""Rules for ranks that disagree about a task: its delivery, the agreement on it, its cancellation.

Ids are those of the signature catalogue in the runbook.
"""

from __future__ import annotations

from skulkctl.verdict.drafts import (
    Draft,
    agreement_deadline,
    clause,
    eval_deadline,
    phrase,
    step_deadline,
)
from skulkctl.verdict.findings import Deadline, Limits
from skulkctl.verdict.ranks import Group, Rank, short_id
from skulkctl.verdict.recorders import differs_twice, has_recorded, position, progress
from skulkctl.verdict.waits import Wait


def different_engines(group: Group, limits: Limits) -> Draft | None:
    """D12: batch events on some ranks, unprefixed ones on others."""
    batch = [rank for rank in group.ranks if "batch_queue_admitted" in rank.events]
    plain = [rank for rank in group.ranks if "queue_admitted" in rank.events]
    if not batch or not plain or set(batch) & set(plain):
        return None
    sentences = (
        f"{clause(batch, 'uses', 'use')} the batch generator, {phrase(plain, 'does', 'do')} not.",
        "Their settings differ: KV backend, batching or drafter.",
    )
    few = plain if len(plain) <= len(batch) else batch
    return Draft("D12", sentences, tuple(few), deadlines=eval_deadline(group.ranks, limits))


def context_refused(group: Group, limits: Limits) -> Draft | None:
    """D25: some ranks refused the prompt as too long, others did not."""
    refused = tuple(
        rank
        for rank in group.ranks
        if has_recorded(rank, "context_admission_rejected", group.task_id)
    )
    if not refused or len(refused) == len(group.ranks):
        return None
    sentences = (
        f"{clause(refused, 'has', 'have')} refused the prompt as too long, the others have not.",
    )
    return Draft("D25", sentences, refused, deadlines=eval_deadline(group.ranks, limits))


def not_delivered(group: Group, limits: Limits) -> Draft | None:
    """D7: some ranks wait for an agreement that an idle rank knows nothing of."""
    waiting = [rank for rank in group.ranks if rank.wait is Wait.AGREEMENT]
    idle = tuple(rank for rank in group.ranks if rank.wait is Wait.REST)
    if not waiting or not idle:
        return None
    task = f"task {group.task_id}" if group.task_id else "the request"
    sentences = (
        f"{clause(idle, 'is', 'are')} idle and never received {task}.",
        f"{clause(waiting, 'waits', 'wait')} for an agreement with "
        f"{'it' if len(idle) == 1 else 'them'}.",
    )
    return Draft("D7", sentences, idle, deadlines=agreement_deadline(waiting, limits))


def never_arrived(group: Group, limits: Limits) -> Draft | None:
    """D7 seen from the other side: a rank waits for a task that the others work on."""
    waiting = tuple(
        rank for rank in group.ranks if rank.wait is Wait.AGREEMENT and _candidates(rank) == 0
    )
    ahead = [rank for rank in group.ranks if progress(rank) > position("task_agreement")]
    if not waiting or len(waiting) + len(ahead) != len(group.ranks):
        return None
    task = f"task {group.task_id}" if group.task_id else "the request"
    sentences = (
        f"{clause(waiting, 'waits', 'wait')} for {task}, which never arrived there.",
        f"{clause(ahead, 'has', 'have')} begun to work on it.",
    )
    deadlines = eval_deadline(ahead, limits)
    return Draft("D7", sentences, waiting, deadlines=deadlines)


def different_tasks(group: Group, limits: Limits) -> Draft | None:
    """D8: again and again the ranks hold different sets of tasks."""
    differing = [rank for rank in group.ranks if differs_twice(rank)]
    if not differing:
        return None
    sentences = ("The ranks keep finding that they hold different tasks.",)
    return Draft("D8", sentences, deadlines=agreement_deadline(differing, limits))


def cancel_subset(group: Group, limits: Limits) -> Draft | None:
    """D20: the cancel reached some ranks only, and they wait for the others to agree."""
    seen = [
        rank for rank in group.ranks if has_recorded(rank, "cancel_pipe_observed", group.task_id)
    ]
    agreed = any(
        has_recorded(rank, "cancellations_agreed", group.task_id)
        or has_recorded(rank, "batch_cancel_applied", group.task_id)
        for rank in group.ranks
    )
    rest = tuple(rank for rank in group.ranks if rank not in seen)
    if not seen or not rest or agreed:
        return None
    sentences = (
        f"{clause(seen, 'has', 'have')} seen the cancel, {phrase(rest, 'has', 'have')} not.",
    )
    again = (f"skulkctl cancel {short_id(group.task_id)}",) if group.task_id else ()
    return Draft("D20", sentences, rest, deadlines=eval_deadline(group.ranks, limits), next=again)


def cadence_diverged(group: Group, limits: Limits) -> Draft | None:
    """D9: one rank wants an agreement while the others are in the middle of a decode step."""
    asking = tuple(
        rank
        for rank in group.ranks
        if rank.wait is Wait.AGREEMENT or rank.entry_phase in ("cancel_requested",)
    )
    going = [rank for rank in group.ranks if rank.entry_phase == "decode_stream"]
    if not asking or not going or not any("pipeline_" in rank.at for rank in going):
        return None
    sentences = (
        f"{clause(asking, 'waits', 'wait')} for an agreement, "
        f"{phrase(going, 'is', 'are')} in the middle of a decode step.",
        "Token counts or the cadence of cancel checks diverged.",
    )
    few = asking if len(asking) <= len(going) else tuple(going)
    return Draft("D9", sentences, few, deadlines=eval_deadline(going, limits))


def not_taken(group: Group, limits: Limits) -> Draft | None:
    """D21: a task was sent, and no rank has taken it, whatever the runners' status sentences."""
    late = tuple(rank for rank in group.ranks if _is_late(rank, limits))
    if not late:
        return None
    pending = late[0].runner.pending_task_ids
    task = pending[0] if pending else "a task"
    since_s = max(rank.runner.pending_seconds or 0.0 for rank in late)
    sent = f", sent {since_s:.0f} s ago" if since_s else " yet"
    if group.still_s < limits.waiting_s:
        why = "The ranks work on other tasks."
    else:
        why = "The process does not read its tasks: it is stuck in a step, or the task was lost."
    sentences = (f"{clause(late, 'has', 'have')} not taken task {task}{sent}.", why)
    deadlines: tuple[Deadline, ...] = ()
    if limits.progress_s is not None:
        deadlines = step_deadline(late, limits.progress_s, since_s, "acknowledgement")
    return Draft("D21", sentences, late, since_s=since_s, deadlines=deadlines)


def _is_late(rank: Rank, limits: Limits) -> bool:
    """A task that waits for an unknown time counts as late, though never as a hang."""
    pending_s = rank.runner.pending_seconds
    return (
        bool(rank.runner.pending_task_ids) if pending_s is None else pending_s >= limits.pending_s
    )


def _candidates(rank: Rank) -> object:
    return None if rank.last is None else rank.last.attrs.get("candidate_count")
