"""The group as rank 0's node leads it: one attempt after the other, never two. Pure.

Whatever comes in, and in whatever order: a new attempt begins only when every rank has said that
nothing of the last one is left. A rank that cannot be asked holds it up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from skulkd.wire.ids import InstanceId, NodeId
from skulkd.worker.causes import RESTARTED, Blame, Ending, given_up_text
from skulkd.worker.crash_window import CrashWindow
from skulkd.worker.group_messages import IN_ATTEMPT, Goal, Level, Report
from skulkd.worker.options import GroupLimits

Phase = Literal["gathering", "joining", "running", "ending", "failed"]

_SERVES = frozenset({"RunnerReady", "RunnerRunning"})
_LOADED = _SERVES | {"RunnerLoaded", "RunnerWarmingUp"}
_CONNECTING = _LOADED | {"RunnerConnecting", "RunnerConnected", "RunnerLoading"}


@dataclass(frozen=True, slots=True)
class Seat:
    """A place in the group. `name` is for people."""

    rank: int
    node_id: NodeId
    name: str

    @property
    def text(self) -> str:
        return f"rank {self.rank} on {self.name}"


class GroupLead:
    """Tell it what is heard and what is lost; `goal` is what every rank is to be told."""

    def __init__(
        self,
        instance_id: InstanceId,
        seats: Sequence[Seat],
        crashes: CrashWindow,
        limits: GroupLimits,
        clock: Callable[[], float],
    ) -> None:
        self._instance_id = instance_id
        self._seats: Mapping[int, Seat] = {seat.rank: seat for seat in seats}
        self._crashes = crashes
        self._limits = limits
        self._clock = clock
        self._reports: dict[int, Report] = {}
        self._newest: dict[int, tuple[str, int]] = {}
        self._endings: list[tuple[Seat, Ending]] = []
        self._hopeless = False
        self._due: float | None = 0.0
        self.phase: Phase = "gathering"
        self.attempt = 0
        self.level = Level.REST
        self.cause: str | None = None
        """Why the last attempt ended, once that is clear, until the next one begins."""
        self._verdict: str | None = None

    # --- what is to be done ---

    def goal(self, rank: int) -> Goal:
        started = self.level >= Level.START
        return Goal(
            instance_id=self._instance_id,
            rank=rank,
            attempt=self.attempt,
            level=self.level,
            ports=[self._reports[r].port or 0 for r in sorted(self._seats)] if started else [],
            cause=self.cause,
        )

    @property
    def serving(self) -> bool:
        """Whether every rank takes requests."""
        return self.level == Level.WARM and self._all(lambda r: r.status in _SERVES)

    @property
    def due(self) -> float | None:
        """When to look again at the latest."""
        return self._due

    # --- what has happened ---

    def take_verdict(self) -> str | None:
        """Why an attempt has ended; once for each that did."""
        verdict, self._verdict = self._verdict, None
        return verdict

    def hear(self, report: Report, *, asked: bool = False) -> None:
        """A rank says where it is; `asked` when this answers a question of ours."""
        life, number = self._newest.get(report.rank, ("", 0))
        overtaken = life == report.life and report.number < number
        # What comes unasked may be of a life that is over; an answer never is.
        if overtaken or (life != report.life and not asked):
            return
        self._newest[report.rank] = (report.life, report.number)
        self._reports[report.rank] = report
        if report.attempt > self.attempt:
            # Left behind by an earlier life of this node: it must go before anything starts.
            self.fail(report.rank, Ending("still in an older attempt", True, blame=Blame.WAITED))
            self.attempt = report.attempt
        else:
            self._note(report)
        self.look()

    def lose(self, rank: int, why: str) -> None:
        """A rank cannot be asked; nothing starts until it is heard again."""
        self._reports.pop(rank, None)
        self.fail(rank, Ending(why, True, blame=Blame.LOST))
        self.look()

    def fail(self, rank: int, ending: Ending) -> None:
        """End the attempt because of this rank; later reports may name a better reason."""
        if self.phase in {"joining", "running"}:
            self.phase, self.level = "ending", Level.REST
            self.cause = None
            self._due = self._clock() + self._limits.settle_s
            self._endings = []
        if self.phase == "ending" and self.cause is None:
            self._endings.append((self._seats[rank], ending))

    def restart(self) -> None:
        """An operator wants another attempt, now; the present one, if any, ends."""
        self._crashes.close()
        self.fail(0, Ending(RESTARTED, True, blame=Blame.LOST))
        if self.phase == "failed":
            self.phase, self._due = "gathering", self._clock()
        if self.phase == "gathering":
            self.cause = None

    def look(self) -> None:
        """Take every step that can be taken now."""
        before = None
        while before != (self.phase, self.level):
            before = (self.phase, self.level)
            self._step()

    # --- inside ---

    def _step(self) -> None:
        now = self._clock()
        match self.phase:
            case "gathering":
                if self._due is not None and now >= self._due:
                    self._due = None
                if self._due is None and self._all(lambda r: r.stage == "out"):
                    self.phase, self.level = "joining", Level.JOIN
                    self.attempt, self.cause = self.attempt + 1, None
                    self._due = now + self._limits.join_s
            case "joining":
                if self._all(lambda r: r.stage == "joined" and r.attempt == self.attempt):
                    self.phase, self.level, self._due = "running", Level.START, None
                elif self._due is not None and now >= self._due:
                    self._too_late()
            case "running":
                self._climb()
            case "ending":
                gone = self._nothing_left()
                if self.cause is None and (gone or (self._due is not None and now >= self._due)):
                    self._settle()
                if gone:
                    self._rest()
            case "failed":
                return

    def _climb(self) -> None:
        """Let the ranks go on, once all of them are as far as the next step needs."""
        last = max(self._seats)
        if self.level == Level.START and self._all(
            lambda r: r.status in _CONNECTING or r.rank == last
        ):
            self.level = Level.CONNECT
        if self.level == Level.CONNECT and self._all(lambda r: r.status in _LOADED):
            self.level = Level.WARM

    def _note(self, report: Report) -> None:
        ours = report.attempt == self.attempt
        ending = None if report.ending is None else report.ending.ending
        if self.phase == "ending":
            if ours and ending is not None:
                self.fail(report.rank, ending)
            return
        bound = self.phase == "running" or (self.phase == "joining" and ours)
        if bound and not (ours and report.stage in IN_ATTEMPT):
            left = Ending("left the group", True, blame=Blame.FOLLOWED)
            self.fail(report.rank, ending if ours and ending is not None else left)

    def _too_late(self) -> None:
        limit_s = self._limits.join_s
        for rank in sorted(self._seats):
            report = self._reports.get(rank)
            if report is None or report.stage != "joined" or report.attempt != self.attempt:
                why = f"did not join within {limit_s:g} s"
                self.fail(rank, Ending(why, True, blame=Blame.WAITED))

    def settle(self) -> None:
        """Find the reason with what is known now, if the attempt is ending."""
        if self.phase == "ending" and self.cause is None:
            self._settle()

    def _settle(self) -> None:
        """The reason is the rank with most of the blame; the first one among equals."""
        self._due = None
        if all(ending.blame is Blame.FOLLOWED for _, ending in self._endings):
            # All that spoke have followed somebody: it was one that did not.
            self._endings += [
                (self._seats[rank], Ending("does not answer", True, blame=Blame.LOST))
                for rank, report in sorted(self._reports.items())
                if report.stage in IN_ATTEMPT
            ]
        seat, ending = min(self._endings, key=lambda found: found[1].blame)
        self.cause = f"{seat.text}: {ending.summary}"
        if ending.words is not None:
            self.cause += f": {ending.words}"
        self._verdict = self.cause
        if ending.blame is not Blame.LOST:
            self._crashes.record()
        # What only looks like a fault of the machine may have been a wait for another rank.
        self._hopeless = not ending.restart_helps and ending.blame is Blame.CULPRIT

    def _rest(self) -> None:
        self.phase, self._due = "gathering", self._clock() + self._crashes.delay_s
        why = "another start would not help" if self._hopeless else "it crashed too often"
        if self._hopeless or self._crashes.open:
            self.phase, self._due = "failed", None
            self.cause = given_up_text(self.cause or "", why, self._instance_id)

    def _nothing_left(self) -> bool:
        """No rank that can be asked has anything of the attempt."""
        return all(report.stage not in IN_ATTEMPT for report in self._reports.values())

    def _all(self, holds: Callable[[Report], bool]) -> bool:
        """Whether it holds for every rank; all of them have to be heard of."""
        return len(self._reports) == len(self._seats) and all(map(holds, self._reports.values()))
