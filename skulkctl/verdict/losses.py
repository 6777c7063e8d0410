"""Findings about what is not there: ranks without a process, nodes that do not answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from skulkctl.verdict.ranks import Group, Rank, short_id
from skulkctl.verdict.shape import Culprit, Finding, State, ranks_text
from skulkctl.views.read import Document, integer, sequence, text

YOUNG_S = 10.0
"""A placement this young is still being made: ranks that are not there yet may come."""


def lost_rank(
    group: Group, timeline: Document, previous: Document | None, names: Mapping[str, str]
) -> Finding | None:
    """NODE GONE or RANK MISSING for one placement; None when every rank has its process."""
    silent = _silent_nodes(timeline)
    if group.missing:
        return _absent(group, silent, _owners(previous, group.instance_id), names)
    # Who says that another rank was lost ended because of that one.
    dead = sorted(
        (rank for rank in group.ranks if _is_dead(rank)),
        key=lambda rank: "group_lost" in rank.events,
    )
    return _dead(group, dead) if dead else None


def cluster_losses(
    timeline: Document,
    previous: Document | None,
    groups: Sequence[Group],
    names: Mapping[str, str],
) -> Iterator[Finding]:
    """Nodes that are silent or have vanished, and whose ranks no finding mentions."""
    present = {rank.node_id for group in groups for rank in group.ranks}
    silent = _silent_nodes(timeline)
    waiting = {short_id(group.instance_id) for group in groups if group.missing}
    if waiting and silent:
        return  # the placement's own finding names the node
    for node_id, error in silent.items():
        yield _node_gone(_node(node_id, names), f"does not answer: {error}")
    before = {text(one, "nodeId") or "" for one in sequence(previous, "runners")}
    known = {rank.instance_id for group in groups for rank in group.ranks}
    for node_id in sorted(before - present - silent.keys()):
        lost = {
            text(one, "instanceId")
            for one in sequence(previous, "runners")
            if text(one, "nodeId") == node_id
        }
        # Its runners may simply have been taken away, with their placement.
        if lost & known:
            yield _node_gone(_node(node_id, names), "was here a moment ago and is in no list now")


def _absent(
    group: Group,
    silent: Mapping[str, str],
    owners: Mapping[int, str],
    names: Mapping[str, str],
) -> Finding:
    missing = group.missing
    told = ranks_text(missing)
    evidence = [rank.evidence() for rank in group.ranks]
    victims = group.others()
    if silent:
        held = [owners[rank] for rank in missing if owners.get(rank) in silent]
        node_id = held[0] if held else next(iter(silent))
        who = _node(node_id, names)
        says = (
            f"{who} does not answer: {silent[node_id]}.",
            f"{told[0].upper()}{told[1:]} of {group.model_id} cannot be seen.",
        )
        return Finding(
            State.NODE_GONE, "D24", group.instance_id, group.model_id, group.still_s, says,
            Culprit(node_id, who.node, missing[0]), victims, tuple(evidence),
            next=_look_for(who),
        )  # fmt: skip
    young = all(
        rank.in_phase_s < YOUNG_S and rank.status in ("RunnerIdle", "RunnerConnecting")
        for rank in group.ranks
    )
    owner = owners.get(missing[0])
    culprit = None if owner is None else Culprit(owner, _node(owner, names).node, missing[0])
    what = (f"{told[0].upper()}{told[1:]} of {group.world_size} have no runner.",)
    return Finding(
        State.WAITING if young else State.RANK_MISSING, "D22", group.instance_id, group.model_id,
        group.still_s, what, culprit, victims, tuple(evidence),
        next=("skulkctl instances", f"skulkctl delete {group.short}"),
    )  # fmt: skip


def _dead(group: Group, dead: Sequence[Rank]) -> Finding:
    first = dead[0]
    rest = [rank for rank in group.ranks if rank not in dead]
    says = [f"The process of {first} has ended ({first.status})."]
    if rest:
        told = ranks_text(tuple(rank.rank for rank in rest))
        says.append(f"{told[0].upper()}{told[1:]} cannot go on without it.")
    sites = {str(entry.get("detail")) for rank in rest for entry in rank.entries[-3:]}
    rule = "D11" if any(site.startswith("mtp_") for site in sites) else "D22"
    return Finding(
        State.RANK_MISSING, rule, group.instance_id, group.model_id, group.still_s, tuple(says),
        first.who, group.others(*dead), tuple(rank.evidence() for rank in group.ranks),
        next=(f"skulkctl logs {first.node} --runner {first.runner_id}",
              f"skulkctl delete {group.short}"),
    )  # fmt: skip


def _is_dead(rank: Rank) -> bool:
    ending = rank.status in ("RunnerShuttingDown", "RunnerShutdown")
    # Before its first process a runner is not dead; it has never lived.
    unborn = rank.status == "RunnerIdle" and rank.phase == "created"
    # One that failed and waits again has another attempt before it, and says what it waits for.
    return not rank.alive and not ending and not unborn and rank.waiting is None


def _silent_nodes(timeline: Document) -> dict[str, str]:
    return {
        text(one, "nodeId") or "": text(one, "error") or "no reason given"
        for one in sequence(timeline, "unreachableNodes")
    }


def _owners(previous: Document | None, instance_id: str) -> dict[int, str]:
    """Which node held each rank, the last time that was seen."""
    return {
        integer(one, "deviceRank") or 0: text(one, "nodeId") or ""
        for one in sequence(previous, "runners")
        if text(one, "instanceId") == instance_id
    }


def _node(node_id: str, names: Mapping[str, str]) -> Culprit:
    return Culprit(node_id, names.get(node_id, short_id(node_id)))


def _node_gone(who: Culprit, what: str) -> Finding:
    return Finding(
        State.NODE_GONE, "D24", says=(f"{who} {what}.",), culprit=who,
        next=_look_for(who),
    )  # fmt: skip


def _look_for(who: Culprit) -> tuple[str, ...]:
    """A node that nobody knows the name of cannot be called by it."""
    known = who.node != short_id(who.node_id)
    return (f"ping {who.node}", "skulkctl nodes") if known else ("skulkctl nodes",)
