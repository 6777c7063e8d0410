"""A place for one runner: its record, its crashes and the process it has at the moment."""

import asyncio
from collections.abc import Callable

from skulkd.wire.events import Event
from skulkd.wire.ids import NodeId, RunnerId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import (
    RunnerFailed,
    RunnerIdle,
    RunnerReady,
    RunnerRunning,
    RunnerStatus,
    RunnerWarmingUp,
)
from skulkd.worker.causes import RESTARTED, Ending, given_up_text
from skulkd.worker.crash_window import CrashWindow
from skulkd.worker.desk import TaskDesk
from skulkd.worker.group_seat import GroupSeat
from skulkd.worker.options import CrashPolicy
from skulkd.worker.plan import LocalRunner, Stage
from skulkd.worker.record import Identity, RunnerRecord
from skulkd.worker.supervisor import Supervisor
from skulkd.worker.task_stream import RUNNER_CRASHED, TaskEnded


class Slot:
    """Exists from the first start until the instance is gone, over any number of processes."""

    def __init__(
        self,
        node_id: NodeId,
        instance: Instance,
        runner_id: RunnerId,
        policy: CrashPolicy,
        publish: Callable[[Event], None],
        clock: Callable[[], float],
    ) -> None:
        shard = instance.shard_assignments.runner_to_shard[runner_id]
        self._clock = clock
        self.instance = instance
        self.record = RunnerRecord(Identity(node_id, instance.instance_id, runner_id, shard), clock)
        self.seat = None if shard.world_size == 1 else GroupSeat(instance, shard.device_rank, clock)
        """Set when there are other ranks."""
        self.desk = TaskDesk(self.record, publish, clock, follows=shard.device_rank > 0)
        self.crashes = CrashWindow(policy, clock)
        self.supervisor: Supervisor | None = None
        self.job: asyncio.Task[None] | None = None
        self.published: RunnerStatus | None = None
        self.published_at = 0.0
        self.stopping = False
        self.given_up = False
        self._ending: Ending | None = None
        self._restart_at = 0.0

    @property
    def runner_id(self) -> RunnerId:
        return self.record.identity.runner_id

    @property
    def serving(self) -> Supervisor | None:
        """Who takes requests, None while nobody does."""
        ready = isinstance(self.record.status, RunnerReady | RunnerRunning)
        if self.seat is not None:
            ready = ready and self.seat.lead is not None and self.seat.lead.serving
        return self.supervisor if ready and not self.stopping else None

    @property
    def public_status(self) -> RunnerStatus:
        """For the state. Rank 0 is not ready before it knows that all others are."""
        status = self.record.status
        lead = None if self.seat is None else self.seat.lead
        early = isinstance(status, RunnerReady) and lead is not None and not lead.serving
        return RunnerWarmingUp() if early else status

    def starting(self, job: asyncio.Task[None]) -> None:
        self.job = job
        self._ending = None
        if self.seat is not None:
            self.seat.has_process = True
            self.seat.process_attempt = self.seat.membership.attempt

    def ended(self, ending: Ending) -> None:
        """The process is gone, or never came to be."""
        self.supervisor = self.job = None
        self._ending = ending
        if self.seat is not None:
            self._ended_in_group(self.seat, ending)
            return
        self.desk.close(TaskEnded("Failed", RUNNER_CRASHED, ending.summary))
        if not self.stopping:
            self.crashes.record()
            self._restart_at = self._clock() + self.crashes.delay_s
            self.record.set_status(RunnerFailed(error_message=ending.reason))

    def _ended_in_group(self, seat: GroupSeat, ending: Ending) -> None:
        """The leader counts, decides, and tells what the requests have to be told."""
        seat.has_process = False
        if seat.process_attempt == seat.membership.attempt:
            seat.close(ending)
        if seat.lead is None:
            self.desk.close(TaskEnded("Failed", RUNNER_CRASHED, ending.summary))
        if not self.stopping:
            self.record.set_status(RunnerFailed(error_message=ending.reason))

    def refuse(self, ending: Ending, *, later_s: float) -> None:
        """This rank cannot take part, for now or for good; nothing of it runs."""
        self._restart_at = self._clock() + later_s
        self.given_up = not ending.restart_helps
        if self.seat is not None and self.given_up:
            self.seat.refused = ending
        self.record.set_status(RunnerFailed(error_message=ending.reason))

    def give_up(self, why: str) -> None:
        """Say so where everybody looks."""
        self.given_up = True
        reason = "" if self._ending is None else self._ending.reason
        message = given_up_text(reason, why, self.instance.instance_id)
        self.record.set_status(RunnerFailed(error_message=message))

    def restart(self) -> None:
        """An operator wants a new process, now: also where it was given up."""
        self.crashes.close()
        self.given_up = False
        self._restart_at = self._clock()
        if self._ending is not None:
            self._ending = Ending(self._ending.cause, restart_helps=True)
        seat = self.seat
        if seat is not None:
            seat.refused = seat.membership.cause = None
            if seat.lead is not None:
                seat.lead.restart()
        elif self.supervisor is not None:
            self.supervisor.abort(RESTARTED)
        if isinstance(self.record.status, RunnerFailed):
            self.record.set_status(RunnerIdle())

    def for_plan(self, leader_lost: str | None = None) -> LocalRunner:
        ending = self._ending
        book = self.record.book
        return LocalRunner(
            instance_id=self.instance.instance_id,
            stage=self._stage(),
            status=self.record.status,
            asked=frozenset() if self.supervisor is None else frozenset(self.supervisor.asked),
            uncancelled=frozenset(
                entry.task.task_id for entry in book.open if entry.cancelled_at is None
            ),
            restart_helps=ending is None or ending.restart_helps,
            circuit_open=self.crashes.open,
            restart_at=self._restart_at,
            given_up=self.given_up,
            group=None if self.seat is None else self.seat.view(leader_lost),
        )

    def _stage(self) -> Stage:
        if self.stopping:
            return "stopping"
        if self._ending is not None or (self.seat is not None and self.job is None):
            return "down"
        return "up" if self.record.reported and self.supervisor is not None else "starting"
