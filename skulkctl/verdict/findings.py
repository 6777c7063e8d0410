"""What a verdict consists of: states, limits, and one finding for each instance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skulkctl.verdict.ranks import Group
    from skulkd.wire.timeline import ClusterTimelineLimits, RunnerWaiting


class State(StrEnum):
    """From harmless to urgent; the worst of all instances is the state of the cluster."""

    OK = "OK"
    WAITING = "WAITING"
    RECOVERED = "RECOVERED"
    STALE = "STALE"
    RANK_MISSING = "RANK MISSING"
    NODE_GONE = "NODE GONE"
    HANG = "HANG"


PROBLEMS = frozenset(State) - {State.OK, State.WAITING, State.RECOVERED}
"""For these `--check` exits with 7."""

_URGENCY = {state: order for order, state in enumerate(State)}


@dataclass(frozen=True, slots=True)
class Limits:
    """How long something may last, in seconds. The daemons' own limits come with the timeline."""

    waiting_s: float = 5.0
    """No progress for this long is shown as WAITING."""
    hang_s: float = 30.0
    """No progress on any rank for this long, with work to do, is a HANG."""
    straggler_s: float = 60.0
    """The same for a rank that is late, or works alone."""
    pending_s: float = 5.0
    """A healthy runner accepts a task at once."""
    eval_s: float = 60.0
    warmup_s: float = 300.0
    connect_s: float = 120.0
    first_report_s: float = 120.0
    load_s: float = 300.0
    agreement_s: float | None = None
    """None: no timeout ends ranks that wait for an agreement."""
    progress_s: float | None = None
    """None: no timeout ends a request whose first rank reports no progress."""
    stale_s: float = 30.0
    recovered_s: float = 600.0
    """How long a hang that ended by itself is shown."""

    def with_daemons(self, limits: ClusterTimelineLimits | None) -> Limits:
        """These limits, with those that the daemons keep."""
        if limits is None:
            return self
        theirs = {
            "eval_s": limits.eval_seconds,
            "warmup_s": limits.warmup_seconds,
            "connect_s": limits.connect_seconds,
            "first_report_s": limits.first_report_seconds,
            "agreement_s": limits.agreement_seconds,
            "progress_s": limits.progress_seconds,
        }
        return replace(self, **{name: limit for name, limit in theirs.items() if limit})


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank (or, without one, a node) that a finding points at."""

    node_id: str
    node: str
    rank: int | None = None
    runner_id: str | None = None

    def __str__(self) -> str:
        return self.node if self.rank is None else f"rank {self.rank} on {self.node}"

    def document(self) -> dict[str, object]:
        return {
            "rank": self.rank,
            "nodeId": self.node_id,
            "node": self.node,
            "runnerId": self.runner_id,
        }


@dataclass(frozen=True, slots=True)
class Deadline:
    """A timeout that ends ranks, and in how many seconds."""

    ranks: tuple[int, ...]
    in_s: float
    why: str

    def __str__(self) -> str:
        who = ranks_text(self.ranks)
        ends = "ends" if self.in_s > 0 else "should have ended"
        when = f" in {self.in_s:.0f} s" if self.in_s > 0 else f" {-self.in_s:.0f} s ago"
        return f"the {self.why} {ends} {who}{when}"


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one instance; without an id it is about a node or the data."""

    state: State
    rule: str | None = None
    instance_id: str | None = None
    model_id: str | None = None
    still_s: float | None = None
    """How long no rank has moved."""
    sentences: tuple[str, ...] = ()
    """What is wrong, in one to three sentences."""
    culprit: Culprit | None = None
    victims: tuple[Culprit, ...] = ()
    evidence: tuple[str, ...] = ()
    deadlines: tuple[Deadline, ...] = ()
    difference: tuple[str, tuple[str, ...]] | None = None
    """The first attribute whose value differs, and its value on each rank."""
    next: tuple[str, ...] = ()
    """Commands to run, the harmless one first."""
    task_id: str | None = None
    waits_for: str | None = None
    """What a WAITING is for, when it is known."""
    waits: tuple[tuple[int, RunnerWaiting], ...] = ()
    """Ranks that wait before their start, with the progress of that."""

    @property
    def summary(self) -> str:
        return " ".join(self.sentences)

    @property
    def is_problem(self) -> bool:
        return self.state in PROBLEMS

    @property
    def urgency(self) -> tuple[int, float]:
        return _URGENCY[self.state], self.still_s or 0.0

    def document(self) -> dict[str, object]:
        """The finding as `-o json` prints it."""
        difference = None
        if self.difference is not None:
            difference = {"attribute": self.difference[0], "values": list(self.difference[1])}
        return {
            "state": str(self.state),
            "rule": self.rule,
            "instanceId": self.instance_id,
            "modelId": self.model_id,
            "stillSeconds": self.still_s,
            "summary": self.summary,
            "culprit": None if self.culprit is None else self.culprit.document(),
            "victims": [victim.document() for victim in self.victims],
            "evidence": list(self.evidence),
            "deadlines": [
                {"ranks": list(limit.ranks), "inSeconds": round(limit.in_s, 1), "why": limit.why}
                for limit in self.deadlines
            ],
            "firstDifference": difference,
            "taskId": self.task_id,
            "waitsFor": self.waits_for,
            "waiting": [{"rank": rank, **wait.model_dump()} for rank, wait in self.waits],
            "next": list(self.next),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings, the most urgent first, and the groups they are about in the same order."""

    findings: tuple[Finding, ...] = ()
    groups: tuple[Group, ...] = ()

    @property
    def worst(self) -> Finding:
        nothing = Finding(State.OK, sentences=("Nothing runs.",))
        return self.findings[0] if self.findings else nothing

    def of(self, instance_id: str) -> Finding | None:
        """The finding about this instance."""
        found = (finding for finding in self.findings if finding.instance_id == instance_id)
        return next(found, None)

    def document(self) -> dict[str, object]:
        worst = self.worst
        return {
            "state": str(worst.state),
            "rule": worst.rule,
            "findings": [finding.document() for finding in self.findings],
        }


def ranks_text(ranks: tuple[int, ...]) -> str:
    """`rank 2`, `ranks 2 and 3`, `ranks 0, 1 and 3`."""
    if not ranks:
        return "no rank"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
