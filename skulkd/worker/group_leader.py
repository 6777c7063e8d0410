"""The leader of a group, on the node of rank 0: one attempt after another, never two. Pure.

In whatever order messages arrive: a new attempt begins only when every rank has reported that
nothing of the last one is left. A rank that cannot be reached delays it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from skulkd.wire.ids import InstanceId, NodeId
from skulkd.worker.endings import RESTARTED, Blame, CrashWindow, Ending, given_up_text
from skulkd.worker.group_messages import IN_ATTEMPT, GroupGoal, GroupLevel, Report
from skulkd.worker.options import GroupLimits

Phase = Literal["gathering", "joining", "running", "ending", "failed"]

_SERVING = frozenset({"RunnerReady", "RunnerRunning"})
_LOADED = _SERVING | {"RunnerLoaded", "RunnerWarmingUp"}
_CONNECTING = _LOADED | {"RunnerConnecting", "RunnerConnected", "RunnerLoading"}


@dataclass(frozen=True, slots=True)
class GroupRank:
    """A rank and the node it is on. `name` is for messages."""

    number: int
    node_id: NodeId
    name: str

    @property
    def text(self) -> str:
        return f"rank {self.number} on {self.name}"


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """Why an attempt ended: for the runner's status, and shorter for clients."""

    cause: str
    summary: str


class GroupLeader:
    """Takes reports and losses of ranks; `goal` is what to send to each rank."""

    def __init__(
        self,
        instance_id: InstanceId,
        ranks: Sequence[GroupRank],
        crashes: CrashWindow,
        limits: GroupLimits,
        clock: Callable[[], float],
    ) -> None:
        self._instance_id = instance_id
        self._ranks: Mapping[int, GroupRank] = {rank.number: rank for rank in ranks}
        self._crashes = crashes
        self._limits = limits
        self._clock = clock
        self._reports: dict[int, Report] = {}
        self._newest: dict[int, tuple[str, int]] = {}
        self._endings: list[tuple[GroupRank, Ending]] = []
        self._restart_helps = True
        self._failure: AttemptFailure | None = None
        self.phase: Phase = "gathering"
        self.attempt = 0
        self.level = GroupLevel.REST
        self.cause: str | None = None
        """Why the last attempt ended, once that is decided, until the next one begins."""
        self.check_at: float | None = 0.0
        """When to call `advance` at the latest, if nothing happens before."""

    # --- reading ---

    def goal(self, rank: int) -> GroupGoal:
        started = self.level >= GroupLevel.START
        return GroupGoal(
            instance_id=self._instance_id,
            rank=rank,
            attempt=self.attempt,
            level=self.level,
            ports=[self._reports[r].port or 0 for r in sorted(self._ranks)] if started else [],
            cause=self.cause,
        )

    @property
    def serving(self) -> bool:
        """Whether every rank serves requests."""
        return self.level == GroupLevel.WARM and self._all(lambda r: r.status in _SERVING)

    def pop_failure(self) -> AttemptFailure | None:
        """Why an attempt ended; once for each that did."""
        failure, self._failure = self._failure, None
        return failure

    # --- events ---

    def receive(self, report: Report, *, solicited: bool = False) -> None:
        """A report of a rank; `solicited` when it answers a goal."""
        life, number = self._newest.get(report.rank, ("", 0))
        outdated = life == report.life and report.number < number
        # An unsolicited report may be of a process that has since been replaced; an answer is not.
        if outdated or (life != report.life and not solicited):
            return
        self._newest[report.rank] = (report.life, report.number)
        self._reports[report.rank] = report
        if report.attempt > self.attempt:
            # Left over from before this node restarted: it has to end before anything starts.
            self.fail(report.rank, Ending("still in an older attempt", True, blame=Blame.WAITED))
            self.attempt = report.attempt
        else:
            self._check(report)
        self.advance()

    def lose(self, rank: int, why: str) -> None:
        """A rank cannot be reached; nothing starts until it reports again."""
        self._reports.pop(rank, None)
        self.fail(rank, Ending(why, True, blame=Blame.LOST))
        self.advance()

    def fail(self, rank: int, ending: Ending) -> None:
        """End the attempt because of this rank; a later report may show a better cause."""
        if self.phase in {"joining", "running"}:
            self.phase, self.level = "ending", GroupLevel.REST
            self.cause = None
            self.check_at = self._clock() + self._limits.settle_s
            self._endings = []
        if self.phase == "ending" and self.cause is None:
            self._endings.append((self._ranks[rank], ending))

    def restart(self) -> None:
        """An operator asked for a new attempt; the current one, if any, ends."""
        self._crashes.close()
        self.fail(0, Ending(RESTARTED, True, blame=Blame.LOST))
        if self.phase == "failed":
            self.phase, self.check_at = "gathering", self._clock()
        if self.phase == "gathering":
            self.cause = None

    def advance(self) -> None:
        """Take every step that is possible now."""
        before = None
        while before != (self.phase, self.level):
            before = (self.phase, self.level)
            self._step()

    def decide_cause(self) -> None:
        """Decide with what is known now, if the attempt is ending."""
        if self.phase == "ending" and self.cause is None:
            self._decide_cause()

    # --- phases ---

    def _step(self) -> None:
        now = self._clock()
        due = self.check_at is not None and now >= self.check_at
        match self.phase:
            case "gathering":
                if due:
                    self.check_at = None
                if self.check_at is None and self._all(lambda r: r.stage == "out"):
                    self._begin_attempt(now)
            case "joining":
                if self._all(lambda r: r.stage == "joined" and r.attempt == self.attempt):
                    self.phase, self.level, self.check_at = "running", GroupLevel.START, None
                elif due:
                    self._fail_missing_ranks()
            case "running":
                self._raise_level()
            case "ending":
                gone = self._nothing_left()
                if self.cause is None and (gone or due):
                    self._decide_cause()
                if gone:
                    self._finish_attempt()
            case "failed":
                return

    def _begin_attempt(self, now: float) -> None:
        self.phase, self.level = "joining", GroupLevel.JOIN
        self.attempt, self.cause = self.attempt + 1, None
        # A single rank fetches its files while it joins, which may take hours.
        self.check_at = None if self._alone else now + self._limits.join_s

    def _raise_level(self) -> None:
        """Let the ranks continue once all of them are ready for the next level."""
        last = max(self._ranks)
        if self.level == GroupLevel.START and self._all(
            lambda r: r.status in _CONNECTING or r.rank == last
        ):
            self.level = GroupLevel.CONNECT
        if self.level == GroupLevel.CONNECT and self._all(lambda r: r.status in _LOADED):
            self.level = GroupLevel.WARM

    def _check(self, report: Report) -> None:
        """End the attempt if this rank is no longer in it."""
        current = report.attempt == self.attempt
        ending = None if report.ending is None else report.ending.ending
        if self.phase == "ending":
            if current and ending is not None:
                self.fail(report.rank, ending)
            return
        in_attempt = self.phase == "running" or (self.phase == "joining" and current)
        if in_attempt and not (current and report.stage in IN_ATTEMPT):
            left = Ending("left the group", True, blame=Blame.FOLLOWED)
            self.fail(report.rank, ending if current and ending is not None else left)

    def _fail_missing_ranks(self) -> None:
        why = f"did not join within {self._limits.join_s:g} s"
        for rank in sorted(self._ranks):
            report = self._reports.get(rank)
            if report is None or report.stage != "joined" or report.attempt != self.attempt:
                self.fail(rank, Ending(why, True, blame=Blame.WAITED))

    def _decide_cause(self) -> None:
        """The cause is the rank with the lowest `Blame`; the first of several."""
        self.check_at = None
        if all(ending.blame is Blame.FOLLOWED for _, ending in self._endings):
            # Every rank that reported ended because of another: it was one that did not report.
            self._endings += [
                (self._ranks[rank], Ending("does not answer", True, blame=Blame.LOST))
                for rank, report in sorted(self._reports.items())
                if report.stage in IN_ATTEMPT
            ]
        rank, ending = min(self._endings, key=lambda found: found[1].blame)
        self._failure = self._describe(rank, ending)
        self.cause = self._failure.cause
        if ending.blame is not Blame.LOST:
            self._crashes.record()
        # In a group, what looks permanent may have been a wait for another rank.
        certain = self._alone or ending.blame is Blame.CULPRIT
        self._restart_helps = ending.restart_helps or not certain

    def _describe(self, rank: GroupRank, ending: Ending) -> AttemptFailure:
        if self._alone:
            return AttemptFailure(ending.reason, ending.summary)
        message = "" if ending.message is None else f": {ending.message}"
        cause = f"{rank.text}: {ending.summary}{message}"
        return AttemptFailure(cause, cause)

    def _finish_attempt(self) -> None:
        self.phase, self.check_at = "gathering", self._clock() + self._crashes.delay_s
        why = "it crashed too often" if self._restart_helps else "another start would not help"
        if self._crashes.open or not self._restart_helps:
            self.phase, self.check_at = "failed", None
            self.cause = given_up_text(self.cause or "", why, self._instance_id)

    @property
    def _alone(self) -> bool:
        return len(self._ranks) == 1

    def _nothing_left(self) -> bool:
        """Whether no rank that can be reached has anything of the attempt."""
        return all(report.stage not in IN_ATTEMPT for report in self._reports.values())

    def _all(self, holds: Callable[[Report], bool]) -> bool:
        """Whether it holds for every rank; all of them must have reported."""
        return len(self._reports) == len(self._ranks) and all(map(holds, self._reports.values()))
