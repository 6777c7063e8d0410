"""Findings about ranks that go on: a group that was restarted, a cancel that is ignored. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from skulkctl.output.units import parse_time
from skulkctl.verdict.findings import Finding, Limits, State
from skulkctl.verdict.ranks import SUPERVISOR_MARK, Group, Rank, clock_skews
from skulkctl.verdict.waits import SITES, Wait

if TYPE_CHECKING:
    from skulkd.wire.timeline import Timeline, TimelineEntry

_ENDED = "runner_ended"
"""What the supervisor records for every end, with the rank it blames."""
_ENDS = frozenset({"pipeline_eval_timeout", "runner_crashed", "deadline", "group_lost", _ENDED})
_BLAME_ORDER = {"culprit": 0, "lost": 1, "waited": 5}

End = tuple[float, Rank, "TimelineEntry"]
"""How many seconds ago a process ended, its rank, and its last entry."""


def recovered(group: Group, timeline: Timeline, limits: Limits) -> Finding | None:
    """A timeout or an error is on record, and the group was started again after it."""
    generated = parse_time(timeline.generated_at)
    recent = _recent_ends(group, timeline, generated, limits)
    if not recent:
        return None
    # A rank that waited for another when it ended is a victim; the others' last entries say more.
    ago_s, rank, entry = min(recent, key=lambda end: (_innocence(end[2]), end[0]))
    site = entry.detail or "a step"
    timed_out = entry.event == "pipeline_eval_timeout"
    itself = "" if entry.event == _ENDED else " itself"
    why = f"because {site} did not end in time" if timed_out else f"with: {site}"
    # Shown until the newest of them is forgotten, by the clock of the node that answers.
    left_s = limits.recovered_s - min(ended_ago_s for ended_ago_s, _, _ in recent)
    until = (generated or datetime.now(UTC)) + timedelta(seconds=left_s)
    sentences = (
        f"{rank.title} ended{itself} {ago_s:.0f} s ago, {why}.",
        "The group has been started again and moves.",
        f"This is shown for {limits.recovered_s / 60:g} minutes, until {until:%H:%M:%S}Z.",
    )
    rule = ("D11" if site.startswith("mtp_") else "EVAL") if timed_out else "ERROR"
    blamed = _blamed(group, rank, entry)
    return Finding(
        State.RECOVERED, rule, group.instance_id, group.model_id, group.still_s, sentences,
        culprit=None if blamed is None else blamed.culprit,
        victims=group.others() if blamed is None else group.others(blamed),
        evidence=tuple(
            f"{ended}: {last.event}: {last.detail or ''}" for _, ended, last in recent
        ),
        next=(f"skulkctl logs {rank.node} --runner {rank.runner_id}",),
    )  # fmt: skip


def _recent_ends(
    group: Group, timeline: Timeline, generated: datetime | None, limits: Limits
) -> list[End]:
    skews = clock_skews(timeline)
    found: list[End] = []
    for rank in group.ranks:
        for entry in rank.entries:
            moment = parse_time(entry.at) if entry.event in _ENDS else None
            if moment is not None and generated is not None:
                ago_s = (generated - moment).total_seconds() + skews.get(rank.node_id, 0.0)
                found.append((ago_s, rank, entry))
    return [end for end in found if end[0] <= limits.recovered_s]


def _innocence(entry: TimelineEntry) -> int:
    """The lower, the more likely it is that this rank ended first and the others because of it."""
    if entry.event == _ENDED:
        return _BLAME_ORDER.get(str(entry.attrs.get("blame")), 6)
    if entry.event == "group_lost" or _lost_peer(entry):
        return 4
    return 3 if _waited(entry) else 2


def _blamed(group: Group, ended: Rank, entry: TimelineEntry) -> Rank | None:
    """The rank that ended first; None when the entry is a victim's and names nobody."""
    others = [rank for rank in group.ranks if rank is not ended]
    if entry.event == "group_lost":
        lost = entry.attrs.get("lost_rank")
        return next((rank for rank in others if rank.rank == lost), None)
    if _lost_peer(entry):
        return others[0] if len(others) == 1 else None
    return ended if _innocence(entry) in (0, 1, 2) else None


def _lost_peer(entry: TimelineEntry) -> bool:
    return "peer was lost" in (entry.detail or "")


def _waited(entry: TimelineEntry) -> bool:
    """Whether the process ended in a wait for others."""
    return SITES.get(entry.detail or "", Wait.LOCAL) is not Wait.LOCAL


def ignored_cancel(group: Group, limits: Limits) -> Finding | None:
    """D19: a task was to be cancelled, and the runner goes on with it."""
    for rank in group.ranks:
        since_s = _ignored_for_s(rank)
        if since_s is None or since_s < limits.waiting_s:
            continue
        asked = f"was asked to cancel task {rank.task_id} {since_s:.0f} s ago and is still running"
        return Finding(
            State.WAITING, "D19", group.instance_id, group.model_id, None,
            (f"{rank.title} {asked}.",),
            culprit=rank.culprit, victims=group.others(rank), evidence=tuple(evidence_of(group)),
            next=(f"skulkctl capture {group.short}/{rank.rank}", f"skulkctl delete {group.short}"),
            task_id=rank.task_id,
        )  # fmt: skip
    return None


def _ignored_for_s(rank: Rank) -> float | None:
    """How long it has worked on a task since it was asked to cancel it; None when it was not."""
    mark = next((entry for entry in rank.entries if entry.event == SUPERVISOR_MARK), None)
    if mark is None or mark.task_id is None or mark.task_id != rank.task_id:
        return None
    dropped = any(
        entry.phase == "cancel_observed" and entry.task_id in (mark.task_id, None)
        for entry in rank.entries
    )
    asked, heard = parse_time(mark.at), parse_time(rank.entry_at)
    if dropped or asked is None or heard is None:
        return None
    return heard.timestamp() - asked.timestamp() + rank.still_s


def ignores_cancel(rank: Rank) -> bool:
    """Asked to cancel, and has recorded nothing since: asking again will not help."""
    return bool(rank.entries) and rank.entries[-1].event == SUPERVISOR_MARK


def evidence_of(group: Group) -> Iterator[str]:
    """Where each rank is, and what it has been asked for in vain."""
    for rank in group.ranks:
        yield rank.evidence()
        if ignores_cancel(rank):
            yield f"{rank}: asked to cancel, and has recorded nothing since (D19)"
        pending, pending_s = rank.runner.pending_task_ids, rank.runner.pending_seconds
        if pending:
            since = "" if pending_s is None else f" for {pending_s:.0f} s"
            many = f"{len(pending)} task{'s' if len(pending) > 1 else ''}"
            yield f"{rank}: {many} sent and not acknowledged{since} (D21)"
