"""Findings about what is missing: ranks without a process, nodes that do not answer. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skulkctl.output.units import age_text
from skulkctl.verdict.drafts import upper_first
from skulkctl.verdict.findings import Culprit, Finding, State, ranks_text
from skulkctl.verdict.ranks import ENDING, Group, Rank, short_id

if TYPE_CHECKING:
    from skulkd.wire.cluster import LostNode
    from skulkd.wire.timeline import Timeline

YOUNG_S = 10.0
"""An instance this young may still get the ranks that it lacks."""


def lost_rank(
    group: Group, timeline: Timeline, previous: Timeline | None, names: Mapping[str, str]
) -> Finding | None:
    """NODE GONE or RANK MISSING for one instance; None when every rank has its process."""
    silent = _silent_nodes(timeline)
    if group.missing:
        return _absent(group, silent, _owners(previous, group.instance_id), names)
    # A rank that reports the loss of another ended because of that one.
    dead = sorted(
        (rank for rank in group.ranks if _is_dead(rank)),
        key=lambda rank: "group_lost" in rank.events,
    )
    return _dead(group, dead) if dead else None


def cluster_losses(
    timeline: Timeline,
    previous: Timeline | None,
    groups: Sequence[Group],
    names: Mapping[str, str],
) -> Iterator[Finding]:
    """Nodes that are lost, silent or have vanished, and whose ranks no finding mentions."""
    present = {rank.node_id for group in groups for rank in group.ranks}
    silent = _silent_nodes(timeline)
    for member in timeline.lost_nodes:
        if member.node_id not in silent:
            yield _lost(member)
    if silent and any(group.missing for group in groups):
        return  # the instance's own finding names the node
    for node_id, error in silent.items():
        yield _node_gone(_node(node_id, names), f"does not answer: {error}")
    earlier = [] if previous is None else previous.runners
    known = {group.instance_id for group in groups}
    gone = present | silent.keys() | {member.node_id for member in timeline.lost_nodes}
    for node_id in sorted({runner.node_id for runner in earlier} - gone):
        lost = {runner.instance_id for runner in earlier if runner.node_id == node_id}
        # Its runners may simply have been deleted, with their instance.
        if lost & known:
            yield _node_gone(_node(node_id, names), "was here a moment ago and is in no list now")


def _absent(
    group: Group,
    silent: Mapping[str, str],
    owners: Mapping[int, str],
    names: Mapping[str, str],
) -> Finding:
    missing = group.missing
    ranks = upper_first(ranks_text(missing))
    evidence = [rank.evidence() for rank in group.ranks]
    victims = group.others()
    if silent:
        held = [owners[rank] for rank in missing if owners.get(rank) in silent]
        node_id = held[0] if held else next(iter(silent))
        node = _node(node_id, names)
        sentences = (
            f"{node} does not answer: {silent[node_id]}.",
            f"{ranks} of {group.model_id} cannot be seen.",
        )
        return Finding(
            State.NODE_GONE, "D24", group.instance_id, group.model_id, group.still_s, sentences,
            Culprit(node_id, node.node, missing[0]), victims, tuple(evidence),
            next=_look_for(node),
        )  # fmt: skip
    young = all(
        rank.in_phase_s < YOUNG_S and rank.status in ("RunnerIdle", "RunnerConnecting")
        for rank in group.ranks
    )
    owner = owners.get(missing[0])
    culprit = None if owner is None else Culprit(owner, _node(owner, names).node, missing[0])
    what = (f"{ranks} of {group.world_size} have no runner.",)
    return Finding(
        State.WAITING if young else State.RANK_MISSING, "D22", group.instance_id, group.model_id,
        group.still_s, what, culprit, victims, tuple(evidence),
        next=("skulkctl instances", f"skulkctl delete {group.short}"),
    )  # fmt: skip


def _dead(group: Group, dead: Sequence[Rank]) -> Finding:
    first = dead[0]
    rest = [rank for rank in group.ranks if rank not in dead]
    sentences = [f"The process of {first} has ended ({first.status})."]
    if rest:
        ranks = upper_first(ranks_text(tuple(rank.rank for rank in rest)))
        sentences.append(f"{ranks} cannot continue without it.")
    sites = {entry.detail or "" for rank in rest for entry in rank.entries[-3:]}
    rule = "D11" if any(site.startswith("mtp_") for site in sites) else "D22"
    return Finding(
        State.RANK_MISSING, rule, group.instance_id, group.model_id, group.still_s,
        tuple(sentences), first.culprit, group.others(*dead),
        tuple(rank.evidence() for rank in group.ranks),
        next=(f"skulkctl logs {first.node} --runner {first.runner_id}",
              f"skulkctl delete {group.short}"),
    )  # fmt: skip


def _is_dead(rank: Rank) -> bool:
    # Before its first process is started a runner is not dead.
    unstarted = rank.status == "RunnerIdle" and rank.phase == "created"
    # One that failed and waits again gets another attempt, and says what it waits for.
    return not (rank.alive or rank.status in ENDING or unstarted or rank.waiting is not None)


def _silent_nodes(timeline: Timeline) -> dict[str, str]:
    return {node.node_id: node.error or "no reason given" for node in timeline.unreachable_nodes}


def _owners(previous: Timeline | None, instance_id: str) -> dict[int, str]:
    """Which node held each rank, the last time that was seen."""
    earlier = [] if previous is None else previous.runners
    mine = (runner for runner in earlier if runner.instance_id == instance_id)
    return {runner.device_rank: runner.node_id for runner in mine}


def _node(node_id: str, names: Mapping[str, str]) -> Culprit:
    return Culprit(node_id, names.get(node_id, short_id(node_id)))


def _lost(lost: LostNode) -> Finding:
    """The cluster has given the node up; its ranks may run elsewhere by now."""
    node = Culprit(lost.node_id or "", lost.name)
    return Finding(
        State.NODE_GONE, "D24",
        sentences=(f"{lost.name} left without notice {age_text(lost.since_seconds)} ago.",),
        culprit=node,
        next=(f"ping {lost.name}", f"skulkctl nodes forget {lost.name}", "skulkctl nodes"),
    )  # fmt: skip


def _node_gone(node: Culprit, what: str) -> Finding:
    return Finding(
        State.NODE_GONE, "D24", sentences=(f"{node} {what}.",), culprit=node, next=_look_for(node)
    )


def _look_for(node: Culprit) -> tuple[str, ...]:
    """A node whose name nobody knows cannot be called by it."""
    known = node.node != short_id(node.node_id)
    return (f"ping {node.node}", "skulkctl nodes") if known else ("skulkctl nodes",)
