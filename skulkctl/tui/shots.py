"""What a screen is made of: the data of one moment, and what the person has chosen. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from skulkctl.units import parse_time
from skulkctl.verdict import Finding, Judgement, Limits, judge
from skulkctl.verdict.ranks import Group, Rank, groups_of, skews_of
from skulkctl.views.read import Document, number, sequence, text

SPANS_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
WIDE = 110
SMALL = (60, 15)


@dataclass(frozen=True)
class Shot:
    """One timeline with the one before it; computes everything once."""

    timeline: Document
    previous: Document | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    context: str = ""
    age_s: float = 0.0
    every_s: float = 2.0
    trouble: str = ""
    """Why the last question had no answer."""
    replay: str = ""
    """Which frame of a recording this is."""

    @cached_property
    def judgement(self) -> Judgement:
        return judge(
            self.timeline, self.previous, age_s=self.age_s, names=self.names, limits=self.limits
        )

    @cached_property
    def groups(self) -> list[Group]:
        """The placements, the most urgent first, so that a problem needs no search."""
        known = {group.instance_id: group for group in groups_of(self.timeline, self.names)}
        order = [one.instance_id for one in self.judgement.findings if one.instance_id in known]
        rest = [instance_id for instance_id in known if instance_id not in order]
        return [known[instance_id] for instance_id in [*order, *rest] if instance_id]

    @cached_property
    def skews(self) -> dict[str, float]:
        return skews_of(self.timeline)

    @property
    def skew_text(self) -> str:
        """How far order across nodes can be trusted."""
        told = sequence(self.timeline, "clockSkews")
        if not told:
            nodes = {rank.node_id for group in self.groups for rank in group.ranks}
            return "" if len(nodes) < 2 else "skew ?"
        worst = max(number(one, "roundTripSeconds") or 0.0 for one in told)
        return f"skew ±{max(worst, 0.001):.3f} s"

    @cached_property
    def now_s(self) -> float:
        moment = parse_time(text(self.timeline, "generatedAt") or "")
        return 0.0 if moment is None else moment.timestamp()

    def finding(self, group: Group) -> Finding:
        found = self.judgement.of(group.instance_id)
        return found if found is not None else self.judgement.worst


@dataclass(frozen=True)
class View:
    """What the person has chosen; selections follow identity, not position."""

    instance: str | None = None
    runner: str | None = None
    span_s: float = 60.0
    pan_s: float = 0.0
    only_problems: bool = False
    filter: str = ""
    paused_at: str = ""
    read_only: bool = False
    offline: bool = False
    """There is no daemon that could do anything."""
    ascii: bool = False
    note: str = ""
    other_ranks: bool = True
    attrs: bool = True
    only_task: bool = False

    def without_filter(self) -> View:
        return replace(self, filter="")

    def group_of(self, shot: Shot) -> Group | None:
        """The placement that is shown: the chosen one, else the most urgent."""
        groups = self.groups_of(shot)
        chosen = (group for group in groups if group.instance_id == self.instance)
        return next(chosen, groups[0] if groups else None)

    def groups_of(self, shot: Shot) -> list[Group]:
        if not self.only_problems:
            return shot.groups
        return [group for group in shot.groups if shot.finding(group).is_problem]

    def rank_of(self, group: Group, shot: Shot) -> Rank:
        """The selected rank: the chosen one, else the culprit, else the first."""
        for rank in group.ranks:
            if rank.runner_id == self.runner:
                return rank
        culprit = shot.finding(group).culprit
        for rank in group.ranks:
            if culprit is not None and rank.runner_id == culprit.runner_id:
                return rank
        return group.ranks[0]
