"""Rules for ranks that stand still in the middle of a request.

Ids are those of the signature catalogue in the runbook. The order in `RULES` matters: what
explains more comes first.
"""

from __future__ import annotations

from skulkctl.verdict.compare import values_of
from skulkctl.verdict.draft import (
    Draft,
    agreement_deadline,
    eval_deadline,
    say,
    step_deadline,
    where,
)
from skulkctl.verdict.live import suspect
from skulkctl.verdict.looking import (
    differs_twice,
    has,
    has_now,
    is_open,
    look_at_links,
    low,
    odd_one,
    place,
    place_of,
)
from skulkctl.verdict.ranks import Group, Rank, short_id
from skulkctl.verdict.shape import Deadline, Limits
from skulkctl.verdict.waits import Wait
from skulkctl.views.read import mapping, text

PREPARING = frozenset({"prompt_build", "vision_preprocess", "kv_cache_lookup", "task_submission"})
PREFILL = frozenset({"prefill_pipeline", "prefill_stream", "prefill_barrier"})


def frozen(group: Group, limits: Limits) -> Draft | None:
    """FROZEN: a rank is at work and its process does not even tell its pulse."""
    stopped = tuple(rank for rank in group.ranks if rank.live is not None and rank.live.frozen)
    if not stopped:
        return None
    says = (
        f"{say(stopped, 'is', 'are')} at work and the process does not run: no pulse for "
        f"{max(rank.live.silent_s for rank in stopped if rank.live):.0f} s.",
        "It is stopped, swapped out, or inside a native call that lets nothing else run.",
    )
    return Draft("FROZEN", says, stopped, deadlines=eval_deadline(group.ranks, limits))


def different_engines(group: Group, limits: Limits) -> Draft | None:
    """D12: batch events on some ranks, unprefixed ones on others."""
    batch = [rank for rank in group.ranks if has(rank, "batch_queue_admitted")]
    plain = [rank for rank in group.ranks if has(rank, "queue_admitted")]
    if not batch or not plain or set(batch) & set(plain):
        return None
    says = (
        f"{say(batch, 'uses', 'use')} the batch generator, {low(say(plain, 'does', 'do'))} not.",
        "Their settings differ: KV backend, batching or drafter.",
    )
    few = plain if len(plain) <= len(batch) else batch
    return Draft("D12", says, tuple(few), deadlines=eval_deadline(group.ranks, limits))


def context_refused(group: Group, limits: Limits) -> Draft | None:
    """D25: some ranks refused the prompt as too long, others did not."""
    refused = tuple(
        rank for rank in group.ranks if has_now(rank, "context_admission_rejected", group.task_id)
    )
    if not refused or len(refused) == len(group.ranks):
        return None
    says = (f"{say(refused, 'has', 'have')} refused the prompt as too long, the others have not.",)
    return Draft("D25", says, refused, deadlines=eval_deadline(group.ranks, limits))


def not_delivered(group: Group, limits: Limits) -> Draft | None:
    """D7: some ranks wait for an agreement that an idle rank knows nothing of."""
    waiting = [rank for rank in group.ranks if rank.wait is Wait.AGREEMENT]
    idle = tuple(rank for rank in group.ranks if rank.wait is Wait.REST)
    if not waiting or not idle:
        return None
    task = f"task {group.task_id}" if group.task_id else "the request"
    says = (
        f"{say(idle, 'is', 'are')} idle and never received {task}.",
        f"{say(waiting, 'waits', 'wait')} for an agreement with "
        f"{'it' if len(idle) == 1 else 'them'}.",
    )
    return Draft("D7", says, idle, deadlines=agreement_deadline(waiting, limits))


def told_too_late(group: Group, limits: Limits) -> Draft | None:
    """D7 seen from the other side: a rank waits for a task that the others work on."""
    waiting = tuple(
        rank
        for rank in group.ranks
        if rank.wait is Wait.AGREEMENT and mapping(rank.last, "attrs").get("candidate_count") == 0
    )
    ahead = [rank for rank in group.ranks if place(rank) > place_of("task_agreement")]
    if not waiting or len(waiting) + len(ahead) != len(group.ranks):
        return None
    task = f"task {group.task_id}" if group.task_id else "the request"
    says = (
        f"{say(waiting, 'waits', 'wait')} for {task}, which never arrived there.",
        f"{say(ahead, 'has', 'have')} begun to work on it.",
    )
    deadlines = eval_deadline(ahead, limits)
    return Draft("D7", says, waiting, deadlines=deadlines)


def barrier_skipped(group: Group, limits: Limits) -> Draft | None:
    """D5: some ranks wait in a barrier that others are past, as if it had not been there."""
    inside = [rank for rank in group.ranks if rank.wait is Wait.BARRIER]
    if not inside:
        return None
    furthest = max(place(rank) for rank in inside)
    past = tuple(rank for rank in group.ranks if place(rank) > furthest)
    if not past or len(past) + len(inside) != len(group.ranks):
        return None
    says = (
        f"{say(past, 'is', 'are')} past {inside[0].at}, "
        f"in which {low(say(inside, 'waits', 'wait'))}.",
        "The ranks left the common schedule: a collective was skipped, or lengths diverged.",
    )
    return Draft("D5", says, past, deadlines=eval_deadline(group.ranks, limits))


def different_tasks(group: Group, limits: Limits) -> Draft | None:
    """D8: again and again the ranks hold different sets of tasks."""
    differing = [rank for rank in group.ranks if differs_twice(rank)]
    if not differing:
        return None
    says = ("The ranks keep finding that they hold different tasks.",)
    return Draft("D8", says, deadlines=agreement_deadline(differing, limits))


def cancel_subset(group: Group, limits: Limits) -> Draft | None:
    """D20: the cancel reached some ranks only, and they wait for the others to agree."""
    seen = [rank for rank in group.ranks if has_now(rank, "cancel_pipe_observed", group.task_id)]
    agreed = any(
        has_now(rank, "cancellations_agreed", group.task_id)
        or has_now(rank, "batch_cancel_applied", group.task_id)
        for rank in group.ranks
    )
    rest = tuple(rank for rank in group.ranks if rank not in seen)
    if not seen or not rest or agreed:
        return None
    says = (f"{say(seen, 'has', 'have')} seen the cancel, {low(say(rest, 'has', 'have'))} not.",)
    again = (f"skulkctl cancel {short_id(group.task_id)}",) if group.task_id else ()
    return Draft("D20", says, rest, deadlines=eval_deadline(group.ranks, limits), next=again)


def eval_stuck(group: Group, limits: Limits) -> Draft | None:
    """D1: one rank computes its shard and does not finish; those above wait for its data."""
    busy = tuple(rank for rank in group.ranks if rank.inside("pipeline_last_eval_output"))
    above = [rank for rank in group.ranks if rank.wait is Wait.RECV]
    if len(busy) != 1 or not any(rank.rank > busy[0].rank for rank in above):
        return None
    if any(rank.live is not None and rank.live.out for rank in group.ranks if rank not in busy):
        return None
    culprit = busy[0]
    since = (text(culprit.last, "at") or "")[11:19]
    below = [rank for rank in group.ranks if rank.wait in (Wait.SEND, Wait.GATHER)]
    told = f"{say(above, 'waits', 'wait')} for data from below"
    if below:
        told += f", {low(say(below, 'has', 'have'))} handed the data over"
    says = (
        f"{culprit.title} is the only rank doing its own work: "
        f"inside pipeline_last_eval_output since {since}Z.",
        f"{told}.",
    )
    return Draft("D1", says, busy, deadlines=eval_deadline(above, limits))


def straggler(group: Group, limits: Limits) -> Draft | None:
    """D4: the others are at the barrier before prefill, one still prepares the request."""
    waiting = [rank for rank in group.ranks if rank.entry_phase == "prefill_barrier"]
    late = tuple(rank for rank in group.ranks if rank.works and rank.entry_phase in PREPARING)
    if not waiting or len(late) != 1:
        return None
    says = (
        f"{late[0].title} still prepares the request ({where(late[0])}).",
        f"{say(waiting, 'waits', 'wait')} for it before prefill.",
    )
    deadlines = eval_deadline(waiting, limits)
    return Draft("D4", says, late, hang_s=limits.straggler_s, deadlines=deadlines)


def lengths_diverged(group: Group, limits: Limits) -> Draft | None:
    """D5: one rank is past prefill, the others are not."""
    past = [rank for rank in group.ranks if rank.entry_phase == "decode_barrier"]
    before = [rank for rank in group.ranks if rank.entry_phase in PREFILL]
    if not past or not before or len(past) + len(before) != len(group.ranks):
        return None
    says = (
        f"{say(past, 'is', 'are')} done with prefill, {low(say(before, 'is', 'are'))} not.",
        "Prompt length, prefix hit or chunk count is not the same on every rank.",
    )
    few = tuple(past if len(past) <= len(before) else before)
    return Draft("D5", says, few, deadlines=eval_deadline(group.ranks, limits))


def paths_diverged(group: Group, limits: Limits) -> Draft | None:
    """D6: one rank prefills in one piece, another in a pipeline."""
    whole = [rank for rank in group.ranks if is_open(rank, "stream_generate_prefill")]
    piped = [rank for rank in group.ranks if is_open(rank, "pipeline_parallel_prefill")]
    if not whole or not piped:
        return None
    says = (
        f"{say(whole, 'prefills', 'prefill')} in one piece, "
        f"{low(say(piped, 'prefills', 'prefill'))} in chunks.",
    )
    few = tuple(whole if len(whole) <= len(piped) else piped)
    return Draft("D6", says, few, deadlines=eval_deadline(group.ranks, limits))


def ended_early(group: Group, limits: Limits) -> Draft | None:
    """D10: one rank thinks that the answer is complete, the others go on."""
    done = tuple(
        rank
        for rank in group.ranks
        if rank.entry_phase == "completion" or "final_barrier" in rank.at
    )
    going = [rank for rank in group.ranks if rank.entry_phase == "decode_stream"]
    if not done or not going:
        return None
    says = (
        f"{say(done, 'thinks', 'think')} that the answer is complete, "
        f"{low(say(going, 'goes', 'go'))} on decoding.",
    )
    return Draft("D10", says, done, deadlines=eval_deadline(group.ranks, limits))


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
    says = (
        f"{say(asking, 'waits', 'wait')} for an agreement, "
        f"{low(say(going, 'is', 'are'))} in the middle of a decode step.",
        "Token counts or the cadence of cancel checks diverged.",
    )
    few = asking if len(asking) <= len(going) else tuple(going)
    return Draft("D9", says, few, deadlines=eval_deadline(going, limits))


def first_token_late(group: Group, limits: Limits) -> Draft | None:
    """D23: a rank still waits for the first token that its peers have seen long ago."""
    late = tuple(rank for rank in group.ranks if rank.entry_phase == "decode_wait_first_token")
    ahead = [
        rank for rank in group.ranks if rank not in late and has_now(rank, "first_token", None)
    ]
    if not late or not ahead:
        return None
    says = (
        f"{say(late, 'waits', 'wait')} for the first token, {low(say(ahead, 'has', 'have'))} it.",
    )
    return Draft("D23", says, late, deadlines=eval_deadline(ahead, limits))


def not_arriving(group: Group, limits: Limits) -> Draft | None:
    """D2: a rank has sent, the next one does not receive, and nobody computes."""
    if any(rank.works for rank in group.ranks):
        return None
    for lower, upper in zip(group.ranks, group.ranks[1:], strict=False):
        if lower.wait is Wait.SEND and upper.wait is Wait.RECV:
            says = (
                f"{lower.title} has sent its data, {upper} does not receive it.",
                "The link between them is dead, or their channels are out of step.",
            )
            deadlines = eval_deadline((lower, upper), limits)
            return Draft("D2", says, (lower, upper), deadlines=deadlines, next=look_at_links(group))
    return None


def gather_stuck(group: Group, limits: Limits) -> Draft | None:
    """D3: every rank is past its own work, nobody receives: the last gather does not end."""
    if any(rank.wait not in (Wait.SEND, Wait.GATHER) for rank in group.ranks):
        return None
    counts = {rank.rank: values_of(rank, "token_progress", "completion_tokens")[-1:] for rank in
              group.ranks}  # fmt: skip
    odd = odd_one(group, counts)
    says = ("Every rank is past its own work and waits for all others to gather the token.",)
    culprits = () if odd is None else (odd,)
    return Draft("D3", says, culprits, deadlines=eval_deadline(group.ranks, limits))


def not_taking_part(group: Group, limits: Limits) -> Draft | None:
    """D2 at a barrier: every rank has entered it, and one has not come to the collective."""
    if any(rank.recorded is not Wait.BARRIER for rank in group.ranks):
        return None
    absent = suspect(group.ranks)
    waiting = [rank for rank in group.ranks if rank is not absent]
    if absent is None or not waiting:
        return None
    says = (
        f"{absent.title} has entered {absent.at} and takes no part in it.",
        f"{say(waiting, 'waits', 'wait')} there for it.",
    )
    return Draft("D2", says, (absent,), deadlines=eval_deadline(group.ranks, limits))


def only_one_works(group: Group, limits: Limits) -> Draft | None:
    """D1 in other words: all wait for others, exactly one does not."""
    culprit = suspect(group.ranks)
    waiting = [rank for rank in group.ranks if rank is not culprit]
    if culprit is None or not waiting:
        return None
    now = f", {culprit.now}" if culprit.now else ""
    says = (
        f"{culprit.title} is the only rank that waits for nobody: {where(culprit)}{now}.",
        f"{say(waiting, 'waits', 'wait')} for it.",
    )
    deadlines = eval_deadline(waiting, limits) or agreement_deadline(waiting, limits)
    return Draft("D1", says, (culprit,), deadlines=deadlines)


def inside_a_forward(group: Group, limits: Limits) -> Draft | None:
    """D26: all decode, nothing tells them apart: a collective inside a step does not end."""
    if group.world_size < 2:
        return None
    if any(rank.entry_phase not in ("decode_stream", "prefill_stream") for rank in group.ranks):
        return None
    if any(_in_pipeline(rank) for rank in group.ranks):
        return None
    odd = suspect(group.ranks)
    if odd is None or odd.live is None:
        counts = {rank.rank: values_of(rank, "", "step_count")[-1:] for rank in group.ranks}
        odd = odd_one(group, counts)
    says = ["Every rank is inside a step of the model; a collective in it does not end."]
    if odd is not None:
        says.append(f"{odd.title} is not in it: {where(odd)}.")
    return Draft(
        "D26",
        tuple(says),
        () if odd is None else (odd,),
        deadlines=eval_deadline(group.ranks, limits) or agreement_deadline(group.ranks, limits),
        next=(f"skulkctl capture {group.short}", f"skulkctl delete {group.short}"),
    )


def _in_pipeline(rank: Rank) -> bool:
    site = rank.live.site if rank.live is not None else None
    return rank.at.startswith("pipeline_") or (site or "").startswith("pipeline_")


def not_taken(group: Group, limits: Limits) -> Draft | None:
    """D21: a task was sent, and no rank has taken it, whatever the runners' status says."""
    late = tuple(rank for rank in group.ranks if _is_late(rank, limits))
    if not late:
        return None
    task = late[0].pending[0] if late[0].pending else "a task"
    since_s = max(rank.pending_s or 0.0 for rank in late)
    sent = f", sent {since_s:.0f} s ago" if since_s else " yet"
    if group.still_s < limits.waiting_s:
        why = "The ranks work on other tasks."
    else:
        why = "The process does not read its tasks: it is stuck in a step, or the task was lost."
    says = (f"{say(late, 'has', 'have')} not taken task {task}{sent}.", why)
    deadlines: tuple[Deadline, ...] = ()
    if limits.progress_s is not None:
        deadlines = step_deadline(late, limits.progress_s, since_s, "acknowledgement")
    return Draft("D21", says, late, since_s=since_s, deadlines=deadlines)


def _is_late(rank: Rank, limits: Limits) -> bool:
    """A task that waits for an unknown time counts as late, though never as a hang."""
    if rank.pending_s is None:
        return bool(rank.pending)
    return rank.pending_s >= limits.pending_s


def all_at_a_barrier(group: Group, limits: Limits) -> Draft | None:
    """D2 at a barrier or an agreement: everyone is there and nobody leaves."""
    together = (Wait.BARRIER, Wait.AGREEMENT, Wait.GATHER, Wait.RECV, Wait.SEND)
    if group.world_size < 2 or any(rank.wait not in together for rank in group.ranks):
        return None
    places = {rank.at for rank in group.ranks}
    same = f"inside {places.pop()}" if len(places) == 1 else "for each other in different steps"
    says = (
        f"Every rank waits {same}.",
        "One of them is frozen, a link is dead, or one entered without taking part.",
    )
    deadlines = eval_deadline(group.ranks, limits) or agreement_deadline(group.ranks, limits)
    last = max(group.ranks, key=lambda rank: text(rank.last, "at") or "")
    first = min(group.ranks, key=lambda rank: text(rank.last, "at") or "")
    late = () if last.at == first.at else (last,)
    return Draft("D2", says, late, deadlines=deadlines, next=look_at_links(group))


def unexplained(group: Group, limits: Limits) -> Draft | None:
    """D0: nothing moves and no signature fits; the rank that is silent longest comes first."""
    longest = max(group.ranks, key=lambda rank: rank.still_s)
    alone = group.world_size == 1
    told = f"{longest.title} makes no progress: {where(longest)}."
    says = (told,) if alone else (told, "No known signature fits what the ranks show.")
    patient_s = limits.straggler_s if alone else limits.hang_s
    return Draft("D0", says, (longest,), hang_s=patient_s)


RULES = (
    frozen,
    different_engines,
    context_refused,
    not_delivered,
    cancel_subset,
    eval_stuck,
    straggler,
    lengths_diverged,
    paths_diverged,
    ended_early,
    cadence_diverged,
    first_token_late,
    told_too_late,
    barrier_skipped,
    not_arriving,
    gather_stuck,
    different_tasks,
    not_taking_part,
    inside_a_forward,
    only_one_works,
    not_taken,
    all_at_a_barrier,
    unexplained,
)
