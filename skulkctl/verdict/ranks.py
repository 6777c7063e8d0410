"""The ranks of each instance side by side, each with what it waits for. Pure.

The newest entry of the runner itself says where a rank is: after an `enter` it is inside, after
an `exit` it is in something that no entry describes. Marks of the supervisor say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skulkctl.output.units import parse_time
from skulkctl.verdict.findings import Culprit
from skulkctl.verdict.waits import (
    Wait,
    is_fresh,
    is_frozen,
    recorded_wait,
    wait_now,
    waiting_text,
)

if TYPE_CHECKING:
    from skulkd.wire.timeline import (
        RunnerLive,
        RunnerWaiting,
        Timeline,
        TimelineEntry,
        TimelineRunner,
    )

SHORT_ID = 8
SUPERVISOR_MARK = "supervisor_cancel_requested"
ENDING = frozenset({"RunnerShuttingDown", "RunnerShutdown"})


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Rank:
    """One runner as the timeline shows it now."""

    runner: TimelineRunner
    rank: int
    node: str
    """The name of its node."""
    idle_s: float | None
    """Since its newest entry; None when it has none."""
    entries: Sequence[TimelineEntry]
    events: Set[str]
    """The names of all events on record."""
    recent: Mapping[str, str | None]
    """Events since it was last idle, and the task of each."""
    last: TimelineEntry | None
    """The newest entry that the runner itself made."""
    recorded: Wait
    """What it waits for by its entries alone."""
    wait: Wait

    @property
    def node_id(self) -> str:
        return self.runner.node_id

    @property
    def runner_id(self) -> str:
        return self.runner.runner_id

    @property
    def instance_id(self) -> str:
        return self.runner.instance_id

    @property
    def alive(self) -> bool:
        return self.runner.process_alive

    @property
    def status(self) -> str:
        return self.runner.status_kind

    @property
    def phase(self) -> str:
        return self.runner.phase

    @property
    def in_phase_s(self) -> float:
        return self.runner.seconds_in_phase

    @property
    def task_id(self) -> str | None:
        return self.runner.active_task_id or None

    @property
    def live(self) -> RunnerLive | None:
        return self.runner.live

    @property
    def waiting(self) -> RunnerWaiting | None:
        """What it waits for before its process is started."""
        return self.runner.waiting

    @property
    def is_frozen(self) -> bool:
        """At work, and its process does not run."""
        return self.runner.live is not None and is_frozen(self.runner.live)

    @property
    def is_outside(self) -> bool:
        """At work, running, and in no wait at all, as its pulse says."""
        live = self.runner.live
        return live is not None and is_fresh(live) and not live.site

    @property
    def event(self) -> str:
        return "" if self.last is None else self.last.event

    @property
    def at(self) -> str:
        """What its newest entry is about: the step for enter and exit, else the event."""
        if self.last is None:
            return ""
        return self.last.detail or "" if self.event in ("enter", "exit") else self.event

    @property
    def entry_at(self) -> str:
        """The time of its newest entry, as its node wrote it."""
        return "" if self.last is None else self.last.at

    @property
    def entry_phase(self) -> str:
        return self.phase if self.last is None else self.last.phase

    def inside(self, *details: str) -> bool:
        return self.event == "enter" and self.at in details

    @property
    def still_s(self) -> float:
        """How long it has not moved: no entry, no step, no wait that ended."""
        still_s = self.in_phase_s if self.idle_s is None else self.idle_s
        return still_s if self.live is None else min(still_s, self.live.still_seconds)

    @property
    def works(self) -> bool:
        """Whether it is not waiting for another rank, nor at rest."""
        return self.wait in (Wait.LOCAL, Wait.STEP, Wait.AFTER)

    @property
    def culprit(self) -> Culprit:
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
            progress = waiting_text(self.waiting)
            waits = f"waits for {self.waiting.reason}, {self.waiting.seconds:.0f} s"
            return f"{self}: {waits}{f': {progress}' if progress else ''}"
        if self.last is None:
            return f"{self}: {self.status}, nothing recorded, {self.in_phase_s:.0f} s"
        verb = {"enter": "inside", "exit": "after"}.get(self.event, "at")
        where = f"{verb} {self.at or self.entry_phase} ({self.entry_phase})"
        since = f"since {self.entry_at[11:19]}Z, {self.still_s:.0f} s"
        return f"{self}: {where} {since}; {self.status}{f'; {self.now}' if self.now else ''}"

    @property
    def now(self) -> str:
        """What the pulse adds to the entries."""
        live = self.live
        if live is None or not live.busy:
            return ""
        if is_frozen(live):
            return f"no pulse for {live.silent_seconds:.0f} s"
        doing = f"in {live.site}" if live.site else "in no wait"
        return f"now {doing}, step {live.step}"


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of one instance, in rank order; some may be absent."""

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
        return tuple(rank.culprit for rank in self.ranks if rank not in culprits)


def suspect(ranks: Sequence[Rank]) -> Rank | None:
    """The one rank that all others wait for, as far as that is known.

    First one that does not run at all; then one in no wait; then one that computes, of several the
    last in the pipeline, because handing data over is part of that; then one that queues a step.
    """
    frozen = [rank for rank in ranks if rank.is_frozen]
    outside = [rank for rank in ranks if rank.is_outside]
    if frozen or outside:
        return _only(frozen or outside)
    if any(rank.live is None for rank in ranks):
        return _only([rank for rank in ranks if rank.works])
    computing = [rank for rank in ranks if rank.wait is Wait.LOCAL]
    if computing:
        return max(computing, key=lambda rank: rank.rank)
    return _only([rank for rank in ranks if rank.wait in (Wait.STEP, Wait.AFTER)])


def _only(ranks: Sequence[Rank]) -> Rank | None:
    return ranks[0] if len(ranks) == 1 else None


def short_id(identifier: str) -> str:
    """What people read and type for an id."""
    return identifier[:SHORT_ID]


def groups_of(timeline: Timeline, names: Mapping[str, str]) -> list[Group]:
    """The instances of a timeline; `names` are those of the nodes by their ids."""
    skews = clock_skews(timeline)
    generated = parse_time(timeline.generated_at)
    now_s = None if generated is None else generated.timestamp()
    entries: dict[str, list[TimelineEntry]] = {}
    for entry in timeline.timeline:
        entries.setdefault(entry.runner_id, []).append(entry)
    found: dict[str, dict[int, Rank]] = {}
    for runner in timeline.runners:
        node_id = runner.node_id
        node = names.get(node_id, short_id(node_id))
        idle_s = _idle_s(runner.last_progress_at, now_s, skews.get(node_id, 0.0))
        rank = _rank(runner, node, idle_s, entries.get(runner.runner_id, ()))
        ranks = found.setdefault(runner.instance_id, {})
        # An older record of the same rank may still be there; a live one says more.
        if rank.rank not in ranks or (rank.alive and not ranks[rank.rank].alive):
            ranks[rank.rank] = rank
    return [_group(instance_id, ranks) for instance_id, ranks in found.items()]


def _group(instance_id: str, ranks: Mapping[int, Rank]) -> Group:
    ordered = tuple(ranks[number] for number in sorted(ranks))
    size = max(rank.runner.world_size for rank in ordered)
    return Group(instance_id, ordered[0].runner.model_id, size, ordered)


def clock_skews(timeline: Timeline) -> dict[str, float]:
    """How far each node's clock is ahead of the one that answered, where it was measured.

    An offset within the round trip is none: it changes with every question, and shows nothing.
    """
    return {
        skew.node_id: skew.offset_seconds
        if abs(skew.offset_seconds) > skew.round_trip_seconds
        else 0.0
        for skew in timeline.clock_skews
    }


def _rank(
    runner: TimelineRunner, node: str, idle_s: float | None, entries: Sequence[TimelineEntry]
) -> Rank:
    own = (entry for entry in reversed(entries) if entry.event != SUPERVISOR_MARK)
    last = next(own, None)
    recorded = recorded_wait(last, runner.status_kind, runner.phase)
    return Rank(
        runner=runner,
        rank=runner.device_rank,
        node=node,
        idle_s=idle_s,
        entries=entries,
        events={entry.event for entry in entries},
        recent=_recent(entries),
        last=last,
        recorded=recorded,
        wait=wait_now(recorded, runner.live),
    )


def _recent(entries: Sequence[TimelineEntry]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for entry in reversed(entries):
        if entry.phase == "idle":
            break
        found.setdefault(entry.event, entry.task_id)
    return found


def _idle_s(progress: str | None, now_s: float | None, skew_s: float) -> float | None:
    moment = None if progress is None else parse_time(progress)
    if moment is None or now_s is None:
        return None
    return max(0.0, now_s - (moment.timestamp() - skew_s))
