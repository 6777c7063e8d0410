"""The judgement: a timeline, the one before it, and how old the data is, become findings.

Never says HANG while any rank moves: a placement hangs only when its newest entry, on whatever
rank, is older than the limit, and nothing changed since the last look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from skulkctl.units import parse_time
from skulkctl.verdict import rules_request, rules_start, rules_waiting
from skulkctl.verdict.compare import first_difference, usual_gap_s
from skulkctl.verdict.draft import Draft, request_deadline
from skulkctl.verdict.ends import KILLED, blamed_for, innocence, is_end
from skulkctl.verdict.losses import cluster_losses, lost_rank
from skulkctl.verdict.ranks import (
    ENDING,
    SUPERVISOR_MARK,
    Group,
    Rank,
    groups_of,
    short_id,
    skews_of,
)
from skulkctl.verdict.shape import Finding, Judgement, Limits, State
from skulkctl.verdict.waits import Wait
from skulkctl.views.read import Document, integer, sequence, text

NO_NAMES: Mapping[str, str] = {}


def judge(
    timeline: Document,
    previous: Document | None = None,
    *,
    age_s: float = 0.0,
    names: Mapping[str, str] = NO_NAMES,
    limits: Limits | None = None,
) -> Judgement:
    """What is wrong, per placement; `age_s` is how long ago the timeline was received."""
    keeps = (limits or Limits()).told_by(timeline)
    if age_s > keeps.stale_s:
        says = f"The newest data is {age_s:.0f} s old; the daemon does not answer any more."
        return Judgement((Finding(State.STALE, "AGE", says=(says,), next=("skulkctl status",)),))
    before = _progress(previous)
    groups = groups_of(timeline, names)
    findings = [_of_group(group, timeline, previous, before, keeps, names) for group in groups]
    findings += cluster_losses(timeline, previous, groups, names)
    findings.sort(key=lambda one: (one.urgency, one.model_id or ""), reverse=True)
    return Judgement(tuple(findings))


Progress = tuple[str | None, int | None, int | None]


def _progress(timeline: Document | None) -> dict[str, Progress]:
    """How far each runner was: its newest entry, its steps, its waits."""
    return {
        text(one, "runnerId") or "": (
            text(one, "lastProgressAt"),
            integer(one, "live", "step"),
            integer(one, "live", "moves"),
        )
        for one in sequence(timeline, "runners")
    }


def _of_group(
    group: Group,
    timeline: Document,
    previous: Document | None,
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
            hangs = not moved and still_s >= _patience_s(group, draft, limits)
            state = State.HANG if hangs else State.WAITING
            return _finding(group, draft, state, still_s, limits)
    return (
        _not_taken(group, limits)
        or _recovered(group, timeline, limits)
        or _unanswered_cancel(group, limits)
        or _well(group)
    )


def _draft(group: Group, limits: Limits) -> Draft | None:
    """The signature that fits; ranks at rest may still owe an answer to a task."""
    if _at_rest(group):
        not_taken = rules_request.not_taken(group, limits)
        return not_taken or rules_waiting.shuts_down(group, limits)
    return _first_fit(group, limits)


def _at_rest(group: Group) -> bool:
    """Nothing to do, or on its way out, or an engine that records nothing."""
    if all(rank.status in ENDING for rank in group.ranks):
        return True
    quiet = (Wait.REST, Wait.PLANNER)
    serving = ("RunnerReady", "RunnerRunning")
    if all(rank.wait in quiet and rank.status in serving for rank in group.ranks):
        return True
    return all(rank.phase == "created" and rank.status in serving for rank in group.ranks)


def _moved(rank: Rank, before: Mapping[str, Progress]) -> bool:
    live = rank.live
    counts = (None, None) if live is None else (live.step, live.moves)
    return rank.runner_id in before and (rank.progress_at, *counts) != before[rank.runner_id]


def _first_fit(group: Group, limits: Limits) -> Draft | None:
    for rule in (*rules_waiting.RULES, *rules_start.RULES, *rules_request.RULES):
        draft = rule(group, limits)
        if draft is not None:
            return draft
    return None


def _patience_s(group: Group, draft: Draft, limits: Limits) -> float:
    """How long this may last; work that is slow by habit gets three times its usual pause."""
    patience_s = limits.hang_s if draft.hang_s is None else draft.hang_s
    working = [rank for rank in group.ranks if rank.works and rank.entry_phase == "decode_stream"]
    return max([patience_s, *(3 * usual_gap_s(rank) for rank in working)])


def _finding(group: Group, draft: Draft, state: State, still_s: float, limits: Limits) -> Finding:
    return Finding(
        state=state,
        rule=draft.rule,
        instance_id=group.instance_id,
        model_id=group.model_id,
        still_s=still_s,
        says=draft.says,
        culprit=draft.culprits[0].who if draft.culprits else None,
        victims=group.others(*draft.culprits) if draft.culprits else group.others(),
        evidence=tuple(_evidence(group)),
        deadlines=draft.deadlines or request_deadline(group, limits),
        difference=first_difference(group),
        next=draft.next or _usual_next(group, draft),
        task_id=group.task_id,
        waits_for=draft.waits_for if state is State.WAITING else None,
        waits=tuple((one.rank, one.waiting) for one in group.ranks if one.waiting is not None),
    )


def _not_taken(group: Group, limits: Limits) -> Finding | None:
    """D21 while the ranks move: they work on other tasks, and do not take this one."""
    draft = rules_request.not_taken(group, limits)
    if draft is None:
        return None
    return _finding(group, draft, State.WAITING, draft.since_s or 0.0, limits)


def _evidence(group: Group) -> Iterator[str]:
    for rank in group.ranks:
        yield rank.evidence()
        if _unheard(rank):
            yield f"{rank}: asked to cancel, and has recorded nothing since (D19)"
        if rank.pending:
            since = "" if rank.pending_s is None else f" for {rank.pending_s:.0f} s"
            many = f"{len(rank.pending)} task{'s' if len(rank.pending) > 1 else ''}"
            yield f"{rank}: {many} sent and not acknowledged{since} (D21)"


def _usual_next(group: Group, draft: Draft) -> tuple[str, ...]:
    """Look before you change anything."""
    first = (
        f"skulkctl capture {group.short}/{draft.culprits[0].rank}"
        if draft.culprits
        else f"skulkctl capture {group.short}"
    )
    asked = any(_unheard(rank) for rank in group.ranks)
    if group.task_id and not asked:
        return (first, f"skulkctl cancel {short_id(group.task_id)}")
    return (first, f"skulkctl delete {group.short}")


def _unheard(rank: Rank) -> bool:
    """Asked to cancel, and has recorded nothing since: asking again will not help."""
    return bool(rank.entries) and rank.entries[-1].get("event") == SUPERVISOR_MARK


def _recovered(group: Group, timeline: Document, limits: Limits) -> Finding | None:
    """A timeout or an error is on record, and the group was started again after it."""
    generated = parse_time(text(timeline, "generatedAt") or "")
    skews = skews_of(timeline)
    seen: list[tuple[float, Rank, Document]] = []
    for rank in group.ranks:
        for entry in rank.entries:
            moment = parse_time(text(entry, "at") or "") if is_end(entry) else None
            if moment is not None and generated is not None:
                ago_s = (generated - moment).total_seconds() + skews.get(rank.node_id, 0.0)
                seen.append((ago_s, rank, entry))
    recent = [one for one in seen if one[0] <= limits.recovered_s]
    if not recent:
        return None
    # Who waited for another rank when it ended is a victim; the others' last words say more.
    ago_s, rank, entry = min(recent, key=lambda one: (innocence(one[2]), one[0]))
    site = text(entry, "detail") or "a step"
    timed_out = entry.get("event") == "pipeline_eval_timeout"
    itself = "" if entry.get("event") == KILLED else " itself"
    why = f"because {site} did not end in time" if timed_out else f"with: {site}"
    # The last of them to be forgotten ends it, and the clock is that of the node that answers.
    left_s = limits.recovered_s - min(one[0] for one in recent)
    until = (generated or datetime.now(UTC)) + timedelta(seconds=left_s)
    says = (
        f"{rank.title} ended{itself} {ago_s:.0f} s ago, {why}.",
        "The group has been started again and moves.",
        f"This is shown for {limits.recovered_s / 60:g} minutes, until {until:%H:%M:%S}Z.",
    )
    rule = ("D11" if site.startswith("mtp_") else "EVAL") if timed_out else "ERROR"
    blamed = blamed_for(group, rank, entry)
    return Finding(
        State.RECOVERED, rule, group.instance_id, group.model_id, group.still_s, says,
        culprit=None if blamed is None else blamed.who,
        victims=group.others() if blamed is None else group.others(blamed),
        evidence=tuple(
            f"{one}: {text(found, 'event')}: {text(found, 'detail') or ''}"
            for _, one, found in recent
        ),
        next=(f"skulkctl logs {rank.node} --runner {rank.runner_id}",),
    )  # fmt: skip


def _unanswered_cancel(group: Group, limits: Limits) -> Finding | None:
    """D19: a task was to be cancelled, and the runner goes on with it."""
    for rank in group.ranks:
        mark = next((one for one in rank.entries if one.get("event") == SUPERVISOR_MARK), None)
        task_id = None if mark is None else mark.get("taskId")
        if mark is None or task_id is None or task_id != rank.task_id or _dropped(rank, task_id):
            continue
        asked, heard = parse_time(text(mark, "at") or ""), _newest_moment(rank)
        if asked is None or heard is None:
            continue
        since_s = heard - asked.timestamp() + rank.still_s
        if since_s < limits.waiting_s:
            continue
        says = (
            f"{rank.title} was asked to cancel task {task_id} {since_s:.0f} s ago and goes on.",
        )
        return Finding(
            State.WAITING, "D19", group.instance_id, group.model_id, None, says,
            culprit=rank.who, victims=group.others(rank), evidence=tuple(_evidence(group)),
            next=(f"skulkctl capture {group.short}/{rank.rank}", f"skulkctl delete {group.short}"),
            task_id=str(task_id),
        )  # fmt: skip
    return None


def _dropped(rank: Rank, task_id: object) -> bool:
    return any(
        entry.get("phase") == "cancel_observed" and entry.get("taskId") in (task_id, None)
        for entry in rank.entries
    )


def _newest_moment(rank: Rank) -> float | None:
    moment = parse_time(text(rank.last, "at") or "")
    return None if moment is None else moment.timestamp()


def _well(group: Group) -> Finding:
    busy = any(rank.task_id for rank in group.ranks)
    says = "Every rank moves." if busy else "Nothing is stuck."
    return Finding(
        State.OK, None, group.instance_id, group.model_id, group.still_s, (says,),
        task_id=group.task_id,
    )  # fmt: skip
