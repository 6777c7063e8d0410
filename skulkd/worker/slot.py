"""Owns one runner from its placement on this node to its end, over any number of processes.

Carries out the steps of the plan and keeps the runner's tasks, record and, for rank 0, the leader
of its group. Sends nothing to other nodes: `groups.py` and `group_tasks.py` do.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from skulkd.runner.protocol import TaskTrace
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics, TaskCancelStatus
from skulkd.wire.events import Event, RunnerStatusUpdated
from skulkd.wire.ids import NodeId, RunnerId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import (
    RunnerFailed,
    RunnerIdle,
    RunnerReady,
    RunnerRunning,
    RunnerShutdown,
    RunnerStatus,
    RunnerWarmingUp,
)
from skulkd.wire.state import State
from skulkd.wire.tasks import ConnectToGroup, LoadModel, StartWarmup
from skulkd.wire.topology import Topology
from skulkd.worker.diagnostics import RunnerIdentity, RunnerRecord
from skulkd.worker.endings import RESTARTED, Blame, CrashWindow, Ending, not_started
from skulkd.worker.group_addresses import NoAddress, RankSecurity, ReservedPort, listen_addresses
from skulkd.worker.group_leader import AttemptFailure, GroupLeader, GroupRank
from skulkd.worker.group_messages import Report
from skulkd.worker.launch import CannotLaunch, Launcher, Prepared, check_rdma_links
from skulkd.worker.lifecycle import RunnerLifecycle, RunnerState
from skulkd.worker.options import StopSteps, WorkerOptions
from skulkd.worker.plan import RunnerView, Step
from skulkd.worker.process import Spawn
from skulkd.worker.refusals import NotReady
from skulkd.worker.supervisor import Supervisor
from skulkd.worker.task_stream import RUNNER_CRASHED, TaskEnded
from skulkd.worker.task_table import TaskTable

_log = logging.getLogger(__name__)
_STOP_S = 10.0
_RETRY_S = 5.0
# Publish a status again when the state does not show it for so long.
_REPUBLISH_S = 5.0
_TASK_OF_STEP: dict[Step, type[ConnectToGroup | LoadModel | StartWarmup]] = {
    Step.CONNECT: ConnectToGroup,
    Step.LOAD: LoadModel,
    Step.WARM_UP: StartWarmup,
}


@dataclass(frozen=True, slots=True)
class SlotDeps:
    """What all slots of a worker share."""

    node_id: NodeId
    options: WorkerOptions
    launcher: Launcher
    spawn: Spawn
    security: RankSecurity | None
    topology: Callable[[], Topology]
    publish: Callable[[Event], None]
    on_trace: Callable[[TaskTrace], None]
    begin: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    """Starts a task in the background."""
    on_change: Callable[[], None]
    """Makes the worker plan again, soon."""
    advance: Callable[[], None]
    """Makes the worker plan again before anything else runs."""


class RunnerSlot:
    """Exists until the instance is gone. `life` says what state the runner is in."""

    def __init__(
        self,
        deps: SlotDeps,
        instance: Instance,
        runner_id: RunnerId,
        node_name: Callable[[NodeId], str],
    ) -> None:
        shard = instance.shard_assignments.runner_to_shard[runner_id]
        rank, clock = shard.device_rank, time.monotonic
        identity = RunnerIdentity(deps.node_id, instance.instance_id, runner_id, shard)
        self._deps = deps
        self.instance = instance
        self.life = RunnerLifecycle(instance, rank, clock)
        self.record = RunnerRecord(identity, clock)
        self.tasks = TaskTable(deps.publish, self.record.milestone, clock, follows=rank > 0)
        self.leader: GroupLeader | None = None
        if rank == 0:
            ranks = [GroupRank(n, node, node_name(node)) for n, node in enumerate(self.life.nodes)]
            crashes = CrashWindow(deps.options.crashes, clock)
            limits = deps.options.group
            self.leader = GroupLeader(instance.instance_id, ranks, crashes, limits, clock)
        self.supervisor: Supervisor | None = None
        """Set while there is a process, or one is being started."""
        self._task: asyncio.Task[None] | None = None
        """Prepares, joins or runs the process; one at a time."""
        self._requested: set[Step] = set()
        self._published: RunnerStatus | None = None
        self._published_at = 0.0

    # --- reading ---

    @property
    def runner_id(self) -> RunnerId:
        return self.record.identity.runner_id

    @property
    def serving(self) -> Supervisor | None:
        """The supervisor that takes requests; None unless all ranks are ready."""
        ready = isinstance(self.record.status, RunnerReady | RunnerRunning)
        leads = self.leader is not None and self.leader.serving
        return self.supervisor if ready and leads and not self.life.stopping else None

    @property
    def public_status(self) -> RunnerStatus:
        """For the state. Rank 0 is not ready before all other ranks are."""
        status = self.record.status
        early = isinstance(status, RunnerReady) and self.leader and not self.leader.serving
        return RunnerWarmingUp() if early else status

    def report(self) -> Report:
        return self.life.report(type(self.record.status).__name__)

    def diagnostics(self) -> RunnerSupervisorDiagnostics:
        return self.record.diagnostics(self.tasks)

    def view(self, *, leader_lost: bool) -> RunnerView:
        life = self.life
        return RunnerView(
            state=life.state,
            status=self.record.status,
            rank=life.rank,
            size=len(life.nodes),
            level=life.level,
            busy=self._task is not None and life.process_attempt is None,
            retry_at=life.retry_at,
            attempt_over=life.attempt_over,
            leader_lost=leader_lost,
            requested=frozenset(self._requested),
            uncancelled=frozenset(
                entry.task.task_id for entry in self.tasks.open if entry.cancelled_at is None
            ),
        )

    def publish_status(self, state: State) -> None:
        """Publish the status if it has changed, or if the state has lost it."""
        if self.instance.instance_id not in state.instances:
            return
        now, status = time.monotonic(), self.public_status
        # Clusters that merge may keep the instance and lose the status of its runner.
        shown = status == state.runners.get(self.runner_id, RunnerShutdown())
        if status != self._published or (not shown and now - self._published_at > _REPUBLISH_S):
            self._published, self._published_at = status, now
            event = RunnerStatusUpdated(runner_id=self.runner_id, runner_status=status)
            self._deps.publish(event)

    # --- the group ---

    def advance(self) -> None:
        """Let the leader decide, apply its goal, and show why the last attempt ended."""
        leader = self.leader
        while leader is not None:
            leader.receive(self.report(), solicited=True)
            leader.advance()
            before = self.life.state
            self.life.apply_goal(leader.goal(0))
            if (failure := leader.pop_failure()) is not None:
                self._attempt_failed(leader, failure)
            if self.life.state is before:
                break
        life = self.life
        if life.cause is not None and life.process_attempt is None and life.refusal is None:
            self._set_failed(life.cause)

    def failure_text(self, failure: AttemptFailure) -> TaskEnded:
        """What clients of open requests get."""
        model_id = self.record.identity.shard.model_card.model_id
        who = "the runner" if self.life.alone else "the ranks"
        message = f"{who} of {model_id} ended before it finished ({failure.summary}); ask again"
        return TaskEnded("Failed", RUNNER_CRASHED, message)

    def _attempt_failed(self, leader: GroupLeader, failure: AttemptFailure) -> None:
        if self.life.process_attempt is None and self.life.refusal is None:
            self._set_failed(failure.cause)
        self.tasks.close(self.failure_text(failure))
        if leader.phase == "failed":
            _log.error("runner %s: %s", self.runner_id, leader.cause)

    def _set_failed(self, reason: str) -> None:
        self.record.set_status(RunnerFailed(error_message=reason))

    # --- steps ---

    def take_step(self, step: Step, leader_lost: str | None = None) -> None:
        match step:
            case Step.PREPARE:
                self._begin(self._prepare)
            case Step.JOIN:
                self._begin(partial(self._join, self.life.attempt))
            case Step.START:
                self._start()
            case Step.CONNECT | Step.LOAD | Step.WARM_UP:
                self._request(step)
            case Step.END_ATTEMPT:
                self._end_attempt(None if self.life.attempt_over else leader_lost)

    def _begin(self, work: Callable[[], Awaitable[None]]) -> None:
        async def finish() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                self._task = None
                raise
            except Exception as error:  # noqa: BLE001 - root of the task: only this runner fails
                _log.exception("preparing runner %s failed", self.runner_id)
                why = f"internal error: {type(error).__name__}"
                self._not_prepared(not_started(why, restart_helps=False), self.life.attempt)
            self._task = None
            self._deps.advance()

        self._task = self._deps.begin(finish())

    async def _prepare(self) -> None:
        try:
            self.life.prepared = await self._get_prepared()
        except CannotLaunch as error:
            self._refuse(not_started(str(error), restart_helps=error.retryable), _RETRY_S)
        else:
            self.record.wait.begin("ranks")

    async def _get_prepared(self) -> Prepared:
        wait = self.record.wait
        try:
            return await self._deps.launcher.prepare(self.instance, self.runner_id, wait)
        finally:
            wait.end()

    async def _join(self, attempt: int) -> None:
        life = self.life
        try:
            prepared = await self._get_prepared()
            port = await self._reserve_port()
        except (CannotLaunch, NoAddress, OSError) as error:
            self._not_prepared(_cannot_join(error), attempt)
            return
        if life.attempt != attempt or life.state is not RunnerState.JOINING:
            if port is not None:
                port.release()
            return
        life.prepared = prepared
        life.join(port)
        if not life.alone:
            self.record.wait.begin("ranks")

    async def _reserve_port(self) -> ReservedPort | None:
        """Raises CannotLaunch, NoAddress, OSError."""
        if self.life.alone:
            return None
        rank = self.life.rank
        await check_rdma_links(self.instance, rank, self._deps.topology())
        return ReservedPort(listen_addresses(self.instance, rank))

    def _not_prepared(self, ending: Ending, attempt: int) -> None:
        if self.life.attempt == attempt:
            self.life.leave_attempt(ending)
        self._refuse(ending, 0.0)

    def _refuse(self, ending: Ending, retry_s: float) -> None:
        self.life.refuse(ending, retry_s=retry_s)
        self._set_failed(ending.reason)

    def _request(self, step: Step) -> None:
        """Ask the process to take a step of its start."""
        self._requested.add(step)
        task = _TASK_OF_STEP[step](
            task_id=TaskId(str(uuid4())), instance_id=self.instance.instance_id
        )
        try:
            if self.supervisor is not None:
                self.supervisor.request_step(task)
        except NotReady as refusal:
            # Its pipe is closed, so the process is about to end.
            _log.debug("runner %s was not asked: %s", self.runner_id, refusal)

    # --- the process ---

    def _start(self) -> None:
        deps = self._deps
        self.life.process_started()
        self._requested.clear()
        try:
            prepared = self._prepared_for_attempt()
        except CannotLaunch as error:
            self._process_ended(not_started(str(error), restart_helps=error.retryable))
            deps.on_change()
            return
        self.supervisor = Supervisor(
            prepared,
            self.record,
            self.tasks,
            deps.options,
            deps.spawn,
            self._process_changed,
            deps.on_trace,
        )
        self._task = deps.begin(self._run_process(self.supervisor))

    def _prepared_for_attempt(self) -> Prepared:
        """Raises CannotLaunch."""
        life = self.life
        if life.prepared is None or life.joined_attempt is None:
            raise CannotLaunch("it has left the attempt", retryable=True)
        if life.port is None:
            return life.prepared
        life.port.hand_over()
        security = self._deps.security
        return life.prepared.in_group(self.instance, life.joined_attempt, life.ports, security)

    async def _run_process(self, supervisor: Supervisor) -> None:
        try:
            ending = await supervisor.run()
        except asyncio.CancelledError:
            ending = Ending("interrupted", restart_helps=True)
            self._process_ended(ending)
            self.tasks.close(TaskEnded("Failed", RUNNER_CRASHED, ending.summary))
            raise
        except Exception as error:  # noqa: BLE001 - root of the task: only this runner fails
            _log.exception("the supervisor of runner %s failed", self.runner_id)
            ending = Ending(f"supervisor failed: {type(error).__name__}", restart_helps=False)
        self._process_ended(ending)
        if not self.life.stopping:
            _log.warning("runner %s: %s", self.runner_id, ending.reason)
        self._deps.advance()

    def _process_changed(self) -> None:
        if self.record.reported:
            self.life.process_reported()
        self._deps.on_change()

    def _process_ended(self, ending: Ending) -> None:
        self.supervisor = self._task = None
        self.life.process_ended(ending)
        if self.leader is None:
            self.tasks.close(TaskEnded("Failed", RUNNER_CRASHED, ending.summary))
        if not self.life.stopping:
            self._set_failed(ending.reason)

    def _end_attempt(self, why: str | None) -> None:
        """Kill the process. `why` is set when this rank decided it by itself."""
        if why is not None:
            self.life.leave_attempt(Ending(why, restart_helps=True, blame=Blame.LOST))
        if self.supervisor is not None:
            # Only a restart ends the attempt of a single rank.
            self.supervisor.abort(RESTARTED if self.life.alone else "ended with its group")

    # --- for the worker ---

    def cancel(self, task_id: TaskId) -> TaskCancelStatus | None:
        """None: this runner does not know the task."""
        status = self.tasks.request_cancel(task_id)
        if status == "cancel_requested" and self.supervisor is not None:
            self.supervisor.cancel(task_id)
        return status

    def restart(self) -> None:
        """Start a new process, also after the last restart was given up."""
        self.life.restart()
        if self.leader is not None:
            self.leader.restart()
        if isinstance(self.record.status, RunnerFailed):
            self.record.set_status(RunnerIdle())

    async def stop(self, steps: StopSteps, leaving: TaskEnded) -> None:
        """End the process; open requests end with `leaving`."""
        self.life.stop()
        task, supervisor = self._task, self.supervisor
        if supervisor is not None and not supervisor.spawning:
            await supervisor.stop(steps, leaving)
        elif task is not None:
            task.cancel()  # there is no process yet
        if task is not None:
            _, late = await asyncio.wait({task}, timeout=_STOP_S)
            if late:
                _log.error("the supervisor of runner %s does not end", self.runner_id)
                task.cancel()
        self.tasks.close(leaving)  # its process may be gone while requests wait for the cause
        self.record.set_status(RunnerShutdown())


def _cannot_join(error: CannotLaunch | NoAddress | OSError) -> Ending:
    if isinstance(error, OSError):
        return not_started(error.strerror or str(error), restart_helps=True)
    retryable = isinstance(error, CannotLaunch) and error.retryable
    return not_started(str(error), restart_helps=retryable)
