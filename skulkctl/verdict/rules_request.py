"""Rules for ranks that stop in the middle of a request.

Ids are those of the signature catalogue in the runbook. The order in `RULES` matters: what
explains more comes first.
"""

from __future__ import annotations

from skulkctl.verdict import rules_tasks
from skulkctl.verdict.drafts import (
    Draft,
    agreement_deadline,
    clause,
    eval_deadline,
    phrase,
    where,
)
from skulkctl.verdict.findings import Limits
from skulkctl.verdict.ranks import Group, Rank, suspect
from skulkctl.verdict.recorders import has_recorded, is_open, odd_rank, progress, values_of
from skulkctl.verdict.waits import Wait

PREPARING = frozenset({"prompt_build", "vision_preprocess", "kv_cache_lookup", "task_submission"})
PREFILL = frozenset({"prefill_pipeline", "prefill_stream", "prefill_barrier"})


def frozen(group: Group, limits: Limits) -> Draft | None:
    """FROZEN: a rank is at work and its process does not even tell its pulse."""
    stopped = tuple(rank for rank in group.ranks if rank.is_frozen)
    if not stopped:
        return None
    sentences = (
        f"{clause(stopped, 'is', 'are')} at work and the process does not run: no pulse for "
        f"{max(rank.live.silent_seconds for rank in stopped if rank.live):.0f} s.",
        "It is stopped, swapped out, or inside a native call that lets nothing else run.",
    )
    return Draft("FROZEN", sentences, stopped, deadlines=eval_deadline(group.ranks, limits))


def barrier_skipped(group: Group, limits: Limits) -> Draft | None:
    """D5: some ranks wait in a barrier that others are past, as if it had not been there."""
    inside = [rank for rank in group.ranks if rank.wait is Wait.BARRIER]
    if not inside:
        return None
    furthest = max(progress(rank) for rank in inside)
    past = tuple(rank for rank in group.ranks if progress(rank) > furthest)
    if not past or len(past) + len(inside) != len(group.ranks):
        return None
    sentences = (
        f"{clause(past, 'is', 'are')} past {inside[0].at}, "
        f"in which {phrase(inside, 'waits', 'wait')}.",
        "The ranks left the common schedule: a collective was skipped, or lengths diverged.",
    )
    return Draft("D5", sentences, past, deadlines=eval_deadline(group.ranks, limits))


def eval_stuck(group: Group, limits: Limits) -> Draft | None:
    """D1: one rank computes its shard and does not finish; those above wait for its data."""
    busy = tuple(rank for rank in group.ranks if rank.inside("pipeline_last_eval_output"))
    above = [rank for rank in group.ranks if rank.wait is Wait.RECV]
    if len(busy) != 1 or not any(rank.rank > busy[0].rank for rank in above):
        return None
    if any(rank.is_outside for rank in group.ranks if rank not in busy):
        return None
    culprit = busy[0]
    since = culprit.entry_at[11:19]
    below = [rank for rank in group.ranks if rank.wait in (Wait.SEND, Wait.GATHER)]
    waits = f"{clause(above, 'waits', 'wait')} for data from below"
    if below:
        waits += f", {phrase(below, 'has', 'have')} handed the data over"
    sentences = (
        f"{culprit.title} is the only rank doing its own work: "
        f"inside pipeline_last_eval_output since {since}Z.",
        f"{waits}.",
    )
    return Draft("D1", sentences, busy, deadlines=eval_deadline(above, limits))


def straggler(group: Group, limits: Limits) -> Draft | None:
    """D4: the others are at the barrier before prefill, one still prepares the request."""
    waiting = [rank for rank in group.ranks if rank.entry_phase == "prefill_barrier"]
    late = tuple(rank for rank in group.ranks if rank.works and rank.entry_phase in PREPARING)
    if not waiting or len(late) != 1:
        return None
    sentences = (
        f"{late[0].title} still prepares the request ({where(late[0])}).",
        f"{clause(waiting, 'waits', 'wait')} for it before prefill.",
    )
    deadlines = eval_deadline(waiting, limits)
    return Draft("D4", sentences, late, hang_s=limits.straggler_s, deadlines=deadlines)


def lengths_diverged(group: Group, limits: Limits) -> Draft | None:
    """D5: one rank is past prefill, the others are not."""
    past = [rank for rank in group.ranks if rank.entry_phase == "decode_barrier"]
    before = [rank for rank in group.ranks if rank.entry_phase in PREFILL]
    if not past or not before or len(past) + len(before) != len(group.ranks):
        return None
    sentences = (
        f"{clause(past, 'is', 'are')} done with prefill, {phrase(before, 'is', 'are')} not.",
        "Prompt length, prefix hit or chunk count is not the same on every rank.",
    )
    few = tuple(past if len(past) <= len(before) else before)
    return Draft("D5", sentences, few, deadlines=eval_deadline(group.ranks, limits))


def paths_diverged(group: Group, limits: Limits) -> Draft | None:
    """D6: one rank prefills in one piece, another in a pipeline."""
    whole = [rank for rank in group.ranks if is_open(rank, "stream_generate_prefill")]
    piped = [rank for rank in group.ranks if is_open(rank, "pipeline_parallel_prefill")]
    if not whole or not piped:
        return None
    sentences = (
        f"{clause(whole, 'prefills', 'prefill')} in one piece, "
        f"{phrase(piped, 'prefills', 'prefill')} in chunks.",
    )
    few = tuple(whole if len(whole) <= len(piped) else piped)
    return Draft("D6", sentences, few, deadlines=eval_deadline(group.ranks, limits))


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
    sentences = (
        f"{clause(done, 'thinks', 'think')} that the answer is complete, "
        f"{phrase(going, 'goes', 'go')} on decoding.",
    )
    return Draft("D10", sentences, done, deadlines=eval_deadline(group.ranks, limits))


def first_token_late(group: Group, limits: Limits) -> Draft | None:
    """D23: a rank still waits for the first token that its peers have seen long ago."""
    late = tuple(rank for rank in group.ranks if rank.entry_phase == "decode_wait_first_token")
    ahead = [
        rank for rank in group.ranks if rank not in late and has_recorded(rank, "first_token", None)
    ]
    if not late or not ahead:
        return None
    sentences = (
        f"{clause(late, 'waits', 'wait')} for the first token, {phrase(ahead, 'has', 'have')} it.",
    )
    return Draft("D23", sentences, late, deadlines=eval_deadline(ahead, limits))


def not_arriving(group: Group, limits: Limits) -> Draft | None:
    """D2: a rank has sent, the next one does not receive, and nobody computes."""
    if any(rank.works for rank in group.ranks):
        return None
    for lower, upper in zip(group.ranks, group.ranks[1:], strict=False):
        if lower.wait is Wait.SEND and upper.wait is Wait.RECV:
            sentences = (
                f"{lower.title} has sent its data, {upper} does not receive it.",
                "The link between them is dead, or their channels are out of step.",
            )
            deadlines = eval_deadline((lower, upper), limits)
            return Draft(
                "D2", sentences, (lower, upper), deadlines=deadlines, next=_look_at_links(group)
            )
    return None


def gather_stuck(group: Group, limits: Limits) -> Draft | None:
    """D3: every rank is past its own work, nobody receives: the last gather does not end."""
    if any(rank.wait not in (Wait.SEND, Wait.GATHER) for rank in group.ranks):
        return None
    counts = {rank.rank: values_of(rank, "token_progress", "completion_tokens")[-1:] for rank in
              group.ranks}  # fmt: skip
    odd = odd_rank(group, counts)
    sentences = ("Every rank is past its own work and waits for all others to gather the token.",)
    culprits = () if odd is None else (odd,)
    return Draft("D3", sentences, culprits, deadlines=eval_deadline(group.ranks, limits))


def not_taking_part(group: Group, limits: Limits) -> Draft | None:
    """D2 at a barrier: every rank has entered it, and one has not come to the collective."""
    if any(rank.recorded is not Wait.BARRIER for rank in group.ranks):
        return None
    absent = suspect(group.ranks)
    waiting = [rank for rank in group.ranks if rank is not absent]
    if absent is None or not waiting:
        return None
    sentences = (
        f"{absent.title} has entered {absent.at} and takes no part in it.",
        f"{clause(waiting, 'waits', 'wait')} there for it.",
    )
    return Draft("D2", sentences, (absent,), deadlines=eval_deadline(group.ranks, limits))


def only_one_works(group: Group, limits: Limits) -> Draft | None:
    """D1 in other words: all wait for others, exactly one does not."""
    culprit = suspect(group.ranks)
    waiting = [rank for rank in group.ranks if rank is not culprit]
    if culprit is None or not waiting:
        return None
    now = f", {culprit.now}" if culprit.now else ""
    sentences = (
        f"{culprit.title} is the only rank that does not wait for another: {where(culprit)}{now}.",
        f"{clause(waiting, 'waits', 'wait')} for it.",
    )
    deadlines = eval_deadline(waiting, limits) or agreement_deadline(waiting, limits)
    return Draft("D1", sentences, (culprit,), deadlines=deadlines)


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
        odd = odd_rank(group, counts)
    sentences = ["Every rank is inside a step of the model; a collective in it does not end."]
    if odd is not None:
        sentences.append(f"{odd.title} is not in it: {where(odd)}.")
    return Draft(
        "D26",
        tuple(sentences),
        () if odd is None else (odd,),
        deadlines=eval_deadline(group.ranks, limits) or agreement_deadline(group.ranks, limits),
        next=(f"skulkctl capture {group.short}", f"skulkctl delete {group.short}"),
    )


def _in_pipeline(rank: Rank) -> bool:
    site = "" if rank.live is None else rank.live.site or ""
    return rank.at.startswith("pipeline_") or site.startswith("pipeline_")


def all_at_a_barrier(group: Group, limits: Limits) -> Draft | None:
    """D2 at a barrier or an agreement: everyone is there and nobody leaves."""
    together = (Wait.BARRIER, Wait.AGREEMENT, Wait.GATHER, Wait.RECV, Wait.SEND)
    if group.world_size < 2 or any(rank.wait not in together for rank in group.ranks):
        return None
    places = {rank.at for rank in group.ranks}
    same = f"inside {places.pop()}" if len(places) == 1 else "for each other in different steps"
    sentences = (
        f"Every rank waits {same}.",
        "One of them is frozen, a link is dead, or one entered without taking part.",
    )
    deadlines = eval_deadline(group.ranks, limits) or agreement_deadline(group.ranks, limits)
    last = max(group.ranks, key=lambda rank: rank.entry_at)
    first = min(group.ranks, key=lambda rank: rank.entry_at)
    late = () if last.at == first.at else (last,)
    return Draft("D2", sentences, late, deadlines=deadlines, next=_look_at_links(group))


def unexplained(group: Group, limits: Limits) -> Draft | None:
    """D0: nothing moves and no signature fits; the rank that is silent longest comes first."""
    longest = max(group.ranks, key=lambda rank: rank.still_s)
    alone = group.world_size == 1
    stuck = f"{longest.title} makes no progress: {where(longest)}."
    sentences = (stuck,) if alone else (stuck, "No known signature fits what the ranks show.")
    patient_s = limits.straggler_s if alone else limits.hang_s
    return Draft("D0", sentences, (longest,), hang_s=patient_s)


def _look_at_links(group: Group) -> tuple[str, ...]:
    return (f"skulkctl capture {group.short}", "skulkctl nodes -o wide")


RULES = (
    frozen,
    rules_tasks.different_engines,
    rules_tasks.context_refused,
    rules_tasks.not_delivered,
    rules_tasks.cancel_subset,
    eval_stuck,
    straggler,
    lengths_diverged,
    paths_diverged,
    ended_early,
    rules_tasks.cadence_diverged,
    first_token_late,
    rules_tasks.never_arrived,
    barrier_skipped,
    not_arriving,
    gather_stuck,
    rules_tasks.different_tasks,
    not_taking_part,
    inside_a_forward,
    only_one_works,
    rules_tasks.not_taken,
    all_at_a_barrier,
    unexplained,
)
