"""The shapes of a judgement: states, limits, and one finding per placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from skulkctl.verdict.waiting import Waiting


class State(StrEnum):
    """From harmless to urgent; the worst of all placements speaks for the cluster."""

    OK = "OK"
    WAITING = "WAITING"
    RECOVERED = "RECOVERED"
    STALE = "STALE"
    RANK_MISSING = "RANK MISSING"
    NODE_GONE = "NODE GONE"
    HANG = "HANG"


PROBLEMS = frozenset(State) - {State.OK, State.WAITING, State.RECOVERED}
"""What `--check` answers with exit 7."""

_URGENCY = {state: order for order, state in enumerate(State)}


@dataclass(frozen=True, slots=True)
class Limits:
    """When patience ends, in seconds. What the daemons really use comes with the timeline."""

    waiting_s: float = 5.0
    """Nothing new for this long is worth saying."""
    hang_s: float = 30.0
    """Nothing new on any rank for this long, with work to do, is a hang."""
    straggler_s: float = 60.0
    """A rank that is late, or works alone, gets this long."""
    pending_s: float = 5.0
    """A task that is sent is taken at once by a healthy runner."""
    eval_s: float = 60.0
    warmup_s: float = 300.0
    connect_s: float = 120.0
    first_report_s: float = 120.0
    load_s: float = 300.0
    agreement_s: float | None = None
    """None: nothing ends ranks that wait for an agreement."""
    progress_s: float | None = None
    """None: nothing ends a request whose first rank tells no progress."""
    stale_s: float = 30.0
    recovered_s: float = 600.0
    """How long a hang that ended by itself is remembered."""

    def told_by(self, timeline: Mapping[str, object]) -> Limits:
        """These limits, with those that the daemons say they keep."""
        told = timeline.get("limits")
        if not isinstance(told, Mapping):
            return self
        known = {
            ours: float(value)
            for ours, theirs in _TOLD.items()
            if isinstance(value := told.get(theirs), int | float) and value > 0
        }
        return replace(self, **known)


_TOLD = {
    "eval_s": "evalSeconds",
    "warmup_s": "warmupSeconds",
    "connect_s": "connectSeconds",
    "first_report_s": "firstReportSeconds",
    "agreement_s": "agreementSeconds",
    "progress_s": "progressSeconds",
}


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
    """Who will be ended, in how many seconds, and by what."""

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
    """The verdict on one placement; without an instance it is about a node or the data."""

    state: State
    rule: str | None = None
    instance_id: str | None = None
    model_id: str | None = None
    still_s: float | None = None
    """How long no rank has moved."""
    says: tuple[str, ...] = ()
    """What is wrong, in one to three sentences."""
    culprit: Culprit | None = None
    victims: tuple[Culprit, ...] = ()
    evidence: tuple[str, ...] = ()
    deadlines: tuple[Deadline, ...] = ()
    difference: tuple[str, tuple[str, ...]] | None = None
    """The first attribute whose value differs, and its value on each rank."""
    next: tuple[str, ...] = ()
    """Commands, the harmless one first."""
    task_id: str | None = None
    waits_for: str | None = None
    """The reason of a WAITING, when it is known."""
    waits: tuple[tuple[int, Waiting], ...] = ()
    """Ranks that wait before their start, with the progress of that."""

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
            "summary": " ".join(self.says),
            "culprit": None if self.culprit is None else self.culprit.document(),
            "victims": [victim.document() for victim in self.victims],
            "evidence": list(self.evidence),
            "deadlines": [
                {"ranks": list(one.ranks), "inSeconds": round(one.in_s, 1), "why": one.why}
                for one in self.deadlines
            ],
            "firstDifference": difference,
            "taskId": self.task_id,
            "waitsFor": self.waits_for,
            "waiting": [{"rank": rank, **wait.document()} for rank, wait in self.waits],
            "next": list(self.next),
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """All findings, the most urgent first."""

    findings: tuple[Finding, ...] = field(default=())

    @property
    def worst(self) -> Finding:
        return self.findings[0] if self.findings else Finding(State.OK, says=("Nothing runs.",))

    def of(self, instance_id: str) -> Finding | None:
        """The finding about this placement."""
        found = (one for one in self.findings if one.instance_id == instance_id)
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
