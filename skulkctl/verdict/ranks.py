"""From a timeline's JSON to ranks side by side, each with what it waits for. Pure.

The newest entry of the runner itself says where a rank is: after an `enter` it is inside, after
an `exit` it is in something that no entry describes. Marks of the supervisor say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from skulkctl.units import parse_time
from skulkctl.verdict.live import Live, live_of, wait_now
from skulkctl.verdict.shape import Culprit
from skulkctl.verdict.waiting import Waiting, waiting_of
from skulkctl.verdict.waits import Wait, wait_of
from skulkctl.views.read import Document, integer, number, sequence, text

SHORT_ID = 8
SUPERVISOR_MARK = "supervisor_cancel_requested"
ENDING = frozenset({"RunnerShuttingDown", "RunnerShutdown"})


@dataclass(frozen=True, slots=True, eq=False)
class Rank:
    """One runner as the timeline shows it now."""

    rank: int
    world_size: int
    node_id: str
    node: str
    runner_id: str
    instance_id: str
    model_id: str
    alive: bool
    status: str
    phase: str
    detail: str | None
    in_phase_s: float
    progress_at: str | None
    idle_s: float | None
    """Since its newest entry; None when it has none."""
    task_id: str | None
    command_id: str | None
    entries: Sequence[Document]
    events: Set[object]
    """The names of all events on record."""
    recent: Mapping[object, object]
    """Events since it was last idle, and the task of each."""
    last: Document | None
    wait: Wait
    recorded: Wait
    """What its entries alone say of `wait`."""
    live: Live | None
    pending: Sequence[object]
    """Tasks sent to it that it has not acknowledged."""
    pending_s: float | None
    waiting: Waiting | None
    """What it waits for before its process is started."""

    @property
    def event(self) -> str:
        return text(self.last, "event") or ""

    @property
    def at(self) -> str:
        """What its newest entry is about: the step for enter and exit, else the event."""
        detail = text(self.last, "detail")
        return detail or "" if self.event in ("enter", "exit") else self.event

    @property
    def entry_phase(self) -> str:
        return text(self.last, "phase") or self.phase

    def inside(self, *details: str) -> bool:
        return self.event == "enter" and self.at in details

    def left(self, *details: str) -> bool:
        return self.event == "exit" and self.at in details

    @property
    def still_s(self) -> float:
        """How long it has not moved: no entry, no step, no wait that ended."""
        still_s = self.in_phase_s if self.idle_s is None else self.idle_s
        return still_s if self.live is None else min(still_s, self.live.still_s)

    @property
    def works(self) -> bool:
        """Whether it is not waiting for another rank, nor at rest."""
        return self.wait in (Wait.LOCAL, Wait.STEP, Wait.AFTER)

    @property
    def who(self) -> Culprit:
        return Culprit(self.node_id, self.node, self.rank, self.runner_id)

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.node}"

    @property
    def title(self) -> str:
        """The same at the beginning of a sentence."""
        return f"Rank {self.rank} on {self.node}"

    def evidence(self) -> str:
        """One line: where it is, and since when."""
        if self.waiting is not None:
            about = f": {self.waiting.text}" if self.waiting.text else ""
            return f"{self}: waits for {self.waiting.reason}, {self.waiting.seconds:.0f} s{about}"
        if self.last is None:
            return f"{self}: {self.status}, nothing recorded, {self.in_phase_s:.0f} s"
        verb = {"enter": "inside", "exit": "after"}.get(self.event, "at")
        where = self.at or self.entry_phase
        since = text(self.last, "at") or ""
        return f"{self}: {verb} {where} ({self.entry_phase}) since {since[11:19]}Z, " + (
            f"{self.still_s:.0f} s; {self.status}{f'; {self.now}' if self.now else ''}"
        )

    @property
    def now(self) -> str:
        """What the pulse adds to the entries."""
        live = self.live
        if live is None or not live.busy:
            return ""
        if live.frozen:
            return f"no pulse for {live.silent_s:.0f} s"
        doing = "in no wait" if live.site is None else f"in {live.site}"
        return f"now {doing}, step {live.step}"


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of one placement, in rank order; some may be absent."""

    instance_id: str
    model_id: str
    world_size: int
    ranks: tuple[Rank, ...]

    @property
    def short(self) -> str:
        return short_id(self.instance_id)

    @property
    def still_s(self) -> float:
        """Since any rank moved."""
        return min(rank.still_s for rank in self.ranks)

    @property
    def missing(self) -> tuple[int, ...]:
        known = {rank.rank for rank in self.ranks}
        return tuple(number for number in range(self.world_size) if number not in known)

    @property
    def task_id(self) -> str | None:
        return next((rank.task_id for rank in self.ranks if rank.task_id), None)

    def others(self, *culprits: Rank) -> tuple[Culprit, ...]:
        return tuple(rank.who for rank in self.ranks if rank not in culprits)


def short_id(identifier: str) -> str:
    """What people read and type for an id."""
    return identifier[:SHORT_ID]


def groups_of(timeline: Document, names: Mapping[str, str]) -> list[Group]:
    """The placements of a timeline, by model and instance."""
    skews = skews_of(timeline)
    generated = parse_time(text(timeline, "generatedAt") or "")
    now_s = None if generated is None else generated.timestamp()
    entries: dict[str, list[Document]] = {}
    for entry in sequence(timeline, "timeline"):
        if isinstance(entry, Mapping):
            entries.setdefault(str(entry.get("runnerId")), []).append(entry)
    found: dict[str, dict[int, Rank]] = {}
    for runner in sequence(timeline, "runners"):
        rank = _rank(runner, entries, names, skews, now_s)
        ranks = found.setdefault(rank.instance_id, {})
        # An older record of the same rank may still be there; a live one says more.
        if rank.rank not in ranks or (rank.alive and not ranks[rank.rank].alive):
            ranks[rank.rank] = rank
    return [_group(instance_id, ranks) for instance_id, ranks in found.items()]


def _group(instance_id: str, ranks: Mapping[int, Rank]) -> Group:
    ordered = tuple(ranks[number] for number in sorted(ranks))
    size = max(rank.world_size for rank in ordered)
    return Group(instance_id, ordered[0].model_id, size, ordered)


def skews_of(timeline: Document) -> dict[str, float]:
    """How far each node's clock is ahead of the one that answered, where it was measured.

    An offset within the round trip is none: it changes with every question, and shows nothing.
    """
    skews = {}
    for entry in sequence(timeline, "clockSkews"):
        offset = number(entry, "offsetSeconds")
        if offset is not None:
            known = abs(offset) > (number(entry, "roundTripSeconds") or 0.0)
            skews[text(entry, "nodeId") or ""] = offset if known else 0.0
    return skews


def _rank(
    runner: object,
    entries: Mapping[str, Sequence[Document]],
    names: Mapping[str, str],
    skews: Mapping[str, float],
    now_s: float | None,
) -> Rank:
    node_id = text(runner, "nodeId") or ""
    runner_id = text(runner, "runnerId") or ""
    own = entries.get(runner_id, ())
    last = newest(own)
    status = text(runner, "statusKind") or "unknown"
    phase = text(runner, "phase") or "created"
    recorded = wait_of(last, status, phase)
    live = live_of(runner)
    return Rank(
        rank=integer(runner, "deviceRank") or 0,
        world_size=integer(runner, "worldSize") or 1,
        node_id=node_id,
        node=names.get(node_id, short_id(node_id)),
        runner_id=runner_id,
        instance_id=text(runner, "instanceId") or "",
        model_id=text(runner, "modelId") or "",
        alive=bool(isinstance(runner, Mapping) and runner.get("processAlive")),
        status=status,
        phase=phase,
        detail=text(runner, "phaseDetail"),
        in_phase_s=number(runner, "secondsInPhase") or 0.0,
        progress_at=text(runner, "lastProgressAt"),
        idle_s=_idle_s(text(runner, "lastProgressAt"), now_s, skews.get(node_id, 0.0)),
        task_id=text(runner, "activeTaskId"),
        command_id=text(runner, "activeCommandId"),
        entries=own,
        events={entry.get("event") for entry in own},
        recent=_recent(own),
        last=last,
        wait=wait_now(recorded, live),
        recorded=recorded,
        live=live,
        pending=sequence(runner, "pendingTaskIds"),
        pending_s=number(runner, "pendingSeconds"),
        waiting=waiting_of(runner),
    )


def _recent(entries: Sequence[Document]) -> dict[object, object]:
    found: dict[object, object] = {}
    for entry in reversed(entries):
        if entry.get("phase") == "idle":
            break
        found.setdefault(entry.get("event"), entry.get("taskId"))
    return found


def _idle_s(progress: str | None, now_s: float | None, skew_s: float) -> float | None:
    moment = None if progress is None else parse_time(progress)
    if moment is None or now_s is None:
        return None
    return max(0.0, now_s - (moment.timestamp() - skew_s))


def newest(entries: Iterable[Document]) -> Document | None:
    """The newest entry that the runner itself made."""
    own = (entry for entry in reversed(list(entries)) if entry.get("event") != SUPERVISOR_MARK)
    return next(own, None)
