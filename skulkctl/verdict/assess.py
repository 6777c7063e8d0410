"""The verdict: a timeline, the one before it, and how old the data is, become findings.

It never says HANG while any rank moves: an instance hangs only when its newest entry, on whatever
rank, is older than the limit, and nothing has changed since the timeline before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skulkctl.verdict import rules_request, rules_start, rules_tasks, rules_waiting
from skulkctl.verdict.drafts import Draft, request_deadline
from skulkctl.verdict.findings import Finding, Limits, State, Verdict
from skulkctl.verdict.losses import cluster_losses, lost_rank
from skulkctl.verdict.ranks import ENDING, Group, Rank, groups_of, short_id
from skulkctl.verdict.recorders import first_difference, longest_pause_s
from skulkctl.verdict.recovery import evidence_of, ignored_cancel, ignores_cancel, recovered
from skulkctl.verdict.waits import Wait

if TYPE_CHECKING:
    from skulkd.wire.timeline import RunnerLive, Timeline

NO_NAMES: Mapping[str, str] = {}
RULES = (*rules_waiting.RULES, *rules_start.RULES, *rules_request.RULES)


def assess(
    timeline: Timeline,
    previous: Timeline | None = None,
    *,
    age_s: float = 0.0,
    names: Mapping[str, str] = NO_NAMES,
    limits: Limits | None = None,
) -> Verdict:
    """What is wrong, per instance; `age_s` is how long ago the timeline was received."""
    in_force = (limits or Limits()).with_daemons(timeline.limits)
    groups = groups_of(timeline, names)
    if age_s > in_force.stale_s:
        stale = f"The newest data is {age_s:.0f} s old; the daemon does not answer any more."
        finding = Finding(State.STALE, "AGE", sentences=(stale,), next=("skulkctl status",))
        return Verdict((finding,), tuple(groups))
    before = _progress_of(previous)
    findings = [_of_group(group, timeline, previous, before, in_force, names) for group in groups]
    findings += cluster_losses(timeline, previous, groups, names)
    findings.sort(key=lambda finding: (finding.urgency, finding.model_id or ""), reverse=True)
    order = {finding.instance_id: place for place, finding in enumerate(findings)}
    groups.sort(key=lambda group: order[group.instance_id])
    return Verdict(tuple(findings), tuple(groups))


Progress = tuple[str | None, int | None, int | None]
"""The time of a runner's newest entry, its steps, its waits that have ended."""


def _progress_of(timeline: Timeline | None) -> dict[str, Progress]:
    runners = [] if timeline is None else timeline.runners
    return {
        runner.runner_id: (runner.last_progress_at, *_counts(runner.live)) for runner in runners
    }


def _counts(live: RunnerLive | None) -> tuple[int | None, int | None]:
    return (None, None) if live is None else (live.step, live.moves)


def _of_group(
    group: Group,
    timeline: Timeline,
    previous: Timeline | None,
    before: Mapping[str, Progress],
    limits: Limits,
    names: Mapping[str, str],
) -> Finding:
    lost = lost_rank(group, timeline, previous, names)
    if lost is not None:
        return lost
    moved = any(_moved(rank, before) for rank in group.ranks)
    draft = _draft(group, limits)
    if draft is not None:
        still_s = group.still_s if draft.since_s is None else min(group.still_s, draft.since_s)
        known = draft.waits_for is not None
        if known or still_s >= limits.waiting_s:
            hangs = not moved and still_s >= _limit_s(group, draft, limits)
            state = State.HANG if hangs else State.WAITING
            return _finding(group, draft, state, still_s, limits)
    return (
        _not_taken(group, limits)
        or recovered(group, timeline, limits)
        or ignored_cancel(group, limits)
        or _healthy(group)
    )


def _draft(group: Group, limits: Limits) -> Draft | None:
    """The first signature that matches; ranks at rest may still have a task to accept."""
    if _at_rest(group):
        not_taken = rules_tasks.not_taken(group, limits)
        return not_taken or rules_waiting.shuts_down(group, limits)
    drafts = (rule(group, limits) for rule in RULES)
    return next((draft for draft in drafts if draft is not None), None)


def _at_rest(group: Group) -> bool:
    """Nothing to do, or shutting down, or an engine that records nothing."""
    if all(rank.status in ENDING for rank in group.ranks):
        return True
    quiet = (Wait.REST, Wait.PLANNER)
    serving = ("RunnerReady", "RunnerRunning")
    if all(rank.wait in quiet and rank.status in serving for rank in group.ranks):
        return True
    return all(rank.phase == "created" and rank.status in serving for rank in group.ranks)


def _moved(rank: Rank, before: Mapping[str, Progress]) -> bool:
    now = (rank.runner.last_progress_at, *_counts(rank.live))
    return rank.runner_id in before and now != before[rank.runner_id]


def _limit_s(group: Group, draft: Draft, limits: Limits) -> float:
    """How long this may last; slow decoding may pause three times as long as it usually does."""
    limit_s = limits.hang_s if draft.hang_s is None else draft.hang_s
    working = [rank for rank in group.ranks if rank.works and rank.entry_phase == "decode_stream"]
    return max([limit_s, *(3 * longest_pause_s(rank) for rank in working)])


def _finding(group: Group, draft: Draft, state: State, still_s: float, limits: Limits) -> Finding:
    waits = [(rank.rank, rank.waiting) for rank in group.ranks]
    return Finding(
        state=state,
        rule=draft.rule,
        instance_id=group.instance_id,
        model_id=group.model_id,
        still_s=still_s,
        sentences=draft.sentences,
        culprit=draft.culprits[0].culprit if draft.culprits else None,
        victims=group.others(*draft.culprits),
        evidence=tuple(evidence_of(group)),
        deadlines=draft.deadlines or request_deadline(group, limits),
        difference=first_difference(group),
        next=draft.next or _usual_next(group, draft),
        task_id=group.task_id,
        waits_for=draft.waits_for if state is State.WAITING else None,
        waits=tuple((rank, waiting) for rank, waiting in waits if waiting is not None),
    )


def _not_taken(group: Group, limits: Limits) -> Finding | None:
    """D21 while the ranks move: they work on other tasks, and do not accept this one."""
    draft = rules_tasks.not_taken(group, limits)
    if draft is None:
        return None
    return _finding(group, draft, State.WAITING, draft.since_s or 0.0, limits)


def _usual_next(group: Group, draft: Draft) -> tuple[str, ...]:
    """Capture first, because everything else changes what can be seen."""
    rank = f"/{draft.culprits[0].rank}" if draft.culprits else ""
    first = f"skulkctl capture {group.short}{rank}"
    if group.task_id and not any(ignores_cancel(rank) for rank in group.ranks):
        return (first, f"skulkctl cancel {short_id(group.task_id)}")
    return (first, f"skulkctl delete {group.short}")


def _healthy(group: Group) -> Finding:
    busy = any(rank.task_id for rank in group.ranks)
    return Finding(
        State.OK, None, group.instance_id, group.model_id, group.still_s,
        ("Every rank moves." if busy else "Nothing is stuck.",),
        task_id=group.task_id,
    )  # fmt: skip
