"""What a screen is drawn from: the data of one moment, and what the person has chosen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from skulkctl.output.units import parse_time
from skulkctl.verdict import Finding, Limits, Verdict, assess
from skulkctl.verdict.ranks import Group, Rank, clock_skews

if TYPE_CHECKING:
    from skulkctl.timeline.frames import Cluster
    from skulkd.wire.timeline import Timeline

SPANS_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
WIDE = 110


@dataclass(frozen=True)
class Snapshot:
    """One timeline with the one before it; computes everything once."""

    timeline: Timeline
    previous: Timeline | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    context: str = ""
    age_s: float = 0.0
    every_s: float = 2.0
    trouble: str = ""
    """Why the last poll failed."""
    replay: str = ""
    """Which frame of a recording this is."""
    cluster: Cluster | None = None

    @cached_property
    def verdict(self) -> Verdict:
        return assess(
            self.timeline, self.previous, age_s=self.age_s, names=self.names, limits=self.limits
        )

    @property
    def groups(self) -> Sequence[Group]:
        """The instances, the most urgent first."""
        return self.verdict.groups

    @cached_property
    def skews(self) -> dict[str, float]:
        return clock_skews(self.timeline)

    @property
    def skew_text(self) -> str:
        """How far order across nodes can be trusted."""
        skews = self.timeline.clock_skews
        if not skews:
            nodes = {rank.node_id for group in self.groups for rank in group.ranks}
            return "" if len(nodes) < 2 else "skew ?"
        worst = max(skew.round_trip_seconds for skew in skews)
        return f"skew ±{max(worst, 0.001):.3f} s"

    @cached_property
    def now_s(self) -> float:
        moment = parse_time(self.timeline.generated_at)
        return 0.0 if moment is None else moment.timestamp()

    def finding(self, group: Group) -> Finding:
        found = self.verdict.of(group.instance_id)
        return found if found is not None else self.verdict.worst


@dataclass(frozen=True)
class View:
    """What the person has chosen; selections follow identity, not position."""

    instance: str | None = None
    runner: str | None = None
    span_s: float = 60.0
    pan_s: float = 0.0
    """How long before now the lanes end; 0 follows what happens."""
    cross_s: float | None = None
    """The moment under the crosshair, in seconds since the epoch."""
    only_problems: bool = False
    filter: str = ""
    paused_at: str = ""
    read_only: bool = False
    offline: bool = False
    """A recording is shown: there is no daemon to act on."""
    ascii: bool = False
    plain: bool = False
    """The terminal has no colours."""
    only_task: bool = False
    log_node: str | None = None
    """The node whose log the events page shows; None: the one that answers."""

    def group_of(self, snapshot: Snapshot) -> Group | None:
        """The instance that is shown: the chosen one, else the most urgent."""
        groups = self.groups_of(snapshot)
        chosen = (group for group in groups if group.instance_id == self.instance)
        return next(chosen, groups[0] if groups else None)

    def groups_of(self, snapshot: Snapshot) -> Sequence[Group]:
        if not self.only_problems:
            return snapshot.groups
        return [group for group in snapshot.groups if snapshot.finding(group).is_problem]

    def rank_of(self, group: Group, snapshot: Snapshot) -> Rank:
        """The selected rank: the chosen one, else the culprit, else the first."""
        for rank in group.ranks:
            if rank.runner_id == self.runner:
                return rank
        culprit = snapshot.finding(group).culprit
        for rank in group.ranks:
            if culprit is not None and rank.runner_id == culprit.runner_id:
                return rank
        return group.ranks[0]
