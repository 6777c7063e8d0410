"""The life of one runner as a state machine: from its placement on this node to its end. Pure.

Every runner is a rank of a group; a model on one node is a group of one. Rank 0's node decides
about attempts (`group_leader.py`); each rank applies its goals here and reports its state.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import cast
from uuid import uuid4

from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Instance
from skulkd.worker.endings import Ending
from skulkd.worker.group_addresses import ReservedPort, nodes_by_rank
from skulkd.worker.group_messages import EndingReport, GroupGoal, GroupLevel, Report, ReportedState
from skulkd.worker.launch import Prepared


class RunnerState(StrEnum):
    """Where a runner is in its life. Values are those of reports between nodes."""

    PREPARING = "preparing"
    """Files and memory are being prepared, or will be tried again."""
    REFUSED = "refused"
    """This node cannot run the rank until an operator restarts it."""
    WAITING = "out"
    """Ready for an attempt, which its leader has not begun."""
    JOINING = "joining"
    """In an attempt: prepares again and reserves a port."""
    JOINED = "joined"
    """Has a port and waits until every rank has one."""
    STARTING = "starting"
    """Its process was started and has not sent a status."""
    UP = "up"
    """Its process runs."""
    ENDED = "ended"
    """Out of an attempt that its leader has not ended yet."""
    STOPPING = "stopping"
    """Its instance is gone, or the node stops."""


class RunnerLifecycle:
    """Facts about one rank and the transitions between its states. `slot.py` acts on it."""

    def __init__(self, instance: Instance, rank: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.instance_id = instance.instance_id
        self.nodes: list[NodeId] = nodes_by_rank(instance)
        self.rank = rank
        self.stopping = False
        # Before an attempt.
        self.prepared: Prepared | None = None
        self.refusal: Ending | None = None
        """Why this node cannot run the rank."""
        self.retry_at = 0.0
        # The attempt, as its leader sees it.
        self.goal_at = clock()
        """When the last goal arrived."""
        self.attempt = 0
        self.level = GroupLevel.REST
        self.ports: tuple[int, ...] = ()
        self.cause: str | None = None
        """Why the last attempt ended, as its leader decided."""
        self._left = 0
        """The last attempt that is over for this rank."""
        self._leader_ended = True
        """Whether the leader has ended the last attempt as well."""
        # This rank's part in it.
        self.ending: Ending | None = None
        """How its part of the attempt ended."""
        self.port: ReservedPort | None = None
        self.joined_attempt: int | None = None
        self.process_attempt: int | None = None
        """The attempt of the running process; None without a process."""
        self._process_reported = False
        # Reports.
        self._life = uuid4().hex
        self._reported: tuple[object, ...] | None = None
        self._number = 0

    # --- reading ---

    @property
    def state(self) -> RunnerState:
        return RunnerState.STOPPING if self.stopping else self._rank_state

    @property
    def _rank_state(self) -> RunnerState:
        if self.process_attempt is not None:
            return RunnerState.UP if self._process_reported else RunnerState.STARTING
        if self.refusal is not None:
            return RunnerState.REFUSED
        if self.ending is not None and not self._leader_ended:
            return RunnerState.ENDED
        if self.level >= GroupLevel.JOIN:
            joined = self.joined_attempt == self.attempt
            return RunnerState.JOINED if joined else RunnerState.JOINING
        # A single rank keeps nobody waiting, so it prepares within its attempt.
        unprepared = self.prepared is None and not self.alone
        return RunnerState.PREPARING if unprepared else RunnerState.WAITING

    @property
    def alone(self) -> bool:
        """Whether it is the only rank."""
        return len(self.nodes) == 1

    @property
    def leader(self) -> NodeId:
        return self.nodes[0]

    @property
    def attempt_over(self) -> bool:
        """Whether a process that runs now has to be ended."""
        return self.level is GroupLevel.REST or self.attempt != self.process_attempt

    def report(self, status: str) -> Report:
        """For the leader; the number increases with every change."""
        state = self._rank_state
        stage = RunnerState.UP if state is RunnerState.STARTING else state
        attempt = self.attempt if self.process_attempt is None else self.process_attempt
        port = None if self.port is None else self.port.port
        ending = self.ending or self.refusal
        content = (attempt, stage, port, status, ending)
        if content != self._reported:
            self._reported = content
            self._number += 1
        return Report(
            instance_id=self.instance_id,
            rank=self.rank,
            life=self._life,
            number=self._number,
            attempt=attempt,
            stage=cast(ReportedState, stage.value),
            port=port,
            status=status,
            ending=None if ending is None else EndingReport.of(ending),
        )

    # --- transitions ---

    def apply_goal(self, goal: GroupGoal) -> None:
        """Ignores goals of older attempts, and of one that is over for this rank."""
        self.goal_at = self._clock()
        if goal.attempt < self.attempt:
            return
        if goal.level is GroupLevel.REST:
            if goal.attempt > self.attempt:
                self.ending = None
            self.attempt = self._left = goal.attempt
            self.level, self.ports, self._leader_ended = GroupLevel.REST, (), True
            self.cause = goal.cause
            if self.process_attempt is None:
                self._release_port()
        elif goal.attempt > self._left:
            newer = goal.attempt > self.attempt
            self.attempt = goal.attempt
            self.level = goal.level if newer else max(self.level, goal.level)
            self.ports = tuple(goal.ports) or (() if newer else self.ports)
            self.ending = self.cause = None
            self._leader_ended = False

    def refuse(self, ending: Ending, *, retry_s: float) -> None:
        """It cannot be prepared. Alone, the leader decides from `ending` what happens next."""
        self.retry_at = self._clock() + retry_s
        if not ending.restart_helps and not self.alone:
            self.refusal = ending

    def join(self, port: ReservedPort | None) -> None:
        """Prepared for the current attempt; a group of one needs no port."""
        self._release_port()
        self.port, self.joined_attempt = port, self.attempt

    def process_started(self) -> None:
        self.process_attempt = self.attempt
        self._process_reported = False

    def process_reported(self) -> None:
        """The process has sent a status."""
        self._process_reported = True

    def process_ended(self, ending: Ending) -> None:
        """The process is gone, or could not be started."""
        current = self.process_attempt == self.attempt
        self.process_attempt = None
        if current:
            self.leave_attempt(ending)
        elif self.level is GroupLevel.REST:
            self._release_port()

    def leave_attempt(self, ending: Ending) -> None:
        """The attempt is over for this rank, whatever its leader decides later."""
        self._left = self.attempt
        self.level, self.ports = GroupLevel.REST, ()
        if self.ending is None or ending.blame < self.ending.blame:
            self.ending = ending
        self._release_port()

    def abandon(self, ending: Ending) -> None:
        """The node stops: report that this rank is out, before its process has ended."""
        self.process_attempt = None
        self.leave_attempt(ending)

    def restart(self) -> None:
        """An operator asked for a restart: try again now, also after a refusal."""
        self.refusal = self.cause = None
        self.retry_at = self._clock()

    def stop(self) -> None:
        self.stopping = True
        self._release_port()

    def _release_port(self) -> None:
        if self.port is not None:
            self.port.release()
        self.port = self.joined_attempt = None
