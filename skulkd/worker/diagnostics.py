"""What is known about one runner, over all its processes, and how diagnostics show it.

Plain data without I/O, so reading it never fails, whatever happened to the process.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from skulkd.runner.protocol import (
    Computing,
    FromRunner,
    Output,
    Phase,
    PhaseEntry,
    PrefillProgress,
    Pulse,
    Status,
    TaskAcknowledged,
    TaskStatus,
    TaskTrace,
)
from skulkd.store.staging.progress import FilesProgress
from skulkd.wire.base import format_offset
from skulkd.wire.diagnostics import RunnerDiagnosticContext
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.runners import RunnerIdle, RunnerStatus
from skulkd.wire.shards import ShardMetadata
from skulkd.wire.tasks import BaseRequestTask, Task
from skulkd.wire.timeline import (
    RunnerCompute,
    RunnerLive,
    RunnerStanding,
    RunnerWaiting,
    WaitReason,
)
from skulkd.worker.flight_recorder import FlightRecorder, Milestones
from skulkd.worker.task_table import TaskTable

ReadProgress = Callable[[], FilesProgress | None]

# The names of these messages in the reference's diagnostics.
_EVENT_NAMES: dict[type[FromRunner], str] = {
    Status: "RunnerStatusUpdated",
    TaskStatus: "TaskStatusUpdated",
    TaskAcknowledged: "TaskAcknowledged",
    Output: "ChunkGenerated",
    PrefillProgress: "PrefillProgressChunk",
    TaskTrace: "TracesCollected",
}


@dataclass(frozen=True, slots=True)
class RunnerIdentity:
    """Which runner this is; the same for all its processes."""

    node_id: NodeId
    instance_id: InstanceId
    runner_id: RunnerId
    shard: ShardMetadata


class RunnerRecord:
    """Status, process, recorder and milestones of one runner. Written by its owner."""

    def __init__(
        self,
        identity: RunnerIdentity,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._clock = clock
        self._now = now
        self.identity = identity
        self.recorder = FlightRecorder(self.stamp(), clock)
        self.heartbeat = RunnerHeartbeat(clock)
        self.wait = WaitStatus(clock)
        self.milestones = Milestones()
        self.compute: RunnerCompute | None = None
        """What the current process computes with, once it has reported that."""
        self.pid: int | None = None
        self.alive = False
        self.exit_code: int | None = None
        self.reported = False
        """Whether the current process has sent a status."""
        self.started_at = self.heard_at = self.status_changed_at = clock()
        self.status: RunnerStatus = RunnerIdle()
        self._status_since = self.stamp()
        self._last_sent: str | None = None
        self._last_event: tuple[str, str] | None = None
        self._context = self._context_of(None)
        self.milestone("supervisor_created", type(self.status).__name__)

    def stamp(self) -> str:
        return format_offset(self._now())

    def milestone(self, name: str, detail: str | None = None) -> None:
        stamp = self.stamp()
        self.milestones.add(stamp, name, detail)
        if name == "task_sent":
            self._last_sent = stamp

    # --- the process ---

    def starting(self) -> None:
        """Another process is about to be started for this runner."""
        self.pid = self.exit_code = self.compute = None
        self.reported = False
        self.started_at = self.heard_at = self._clock()
        self.recorder.new_process(self.stamp())
        self.heartbeat.reset()
        self.wait.end()
        self.set_status(RunnerIdle())
        self.milestone("process_start_requested")

    def started(self, pid: int) -> None:
        self.pid, self.alive = pid, True
        self.milestone("process_started", f"pid={pid}")

    def ended(self, exit_code: int | None) -> None:
        """The process is gone; None when even SIGKILL did not end it."""
        self.exit_code = exit_code
        self.alive = self.pid is not None and exit_code is None

    def set_status(self, status: RunnerStatus) -> None:
        """A status that the runner sent or that the daemon decided."""
        if type(status) is not type(self.status):
            self._status_since = self.stamp()
            self.status_changed_at = self._clock()
            self.milestone("status_changed", type(status).__name__)
        self.status = status

    # --- messages ---

    def message_received(self, message: FromRunner, size_bytes: int) -> None:
        if isinstance(message, Pulse):
            # Not progress: a runner that hangs sends heartbeats, too.
            self.heartbeat.update(message)
            return
        self.heard_at = self._clock()
        if isinstance(message, Computing):
            self.compute = message.compute
            return
        stamp = self.stamp()
        if isinstance(message, Phase):
            self.recorder.add(message, size_bytes, self.context)
            detail = message.entry.detail or message.entry.event
            self.milestones.add(stamp, f"phase:{message.entry.phase}", detail[:200])
            return
        name = _EVENT_NAMES[type(message)]
        self._last_event = (stamp, name)
        self.milestones.add(stamp, "event_received", name)

    def cancel_requested(self, task: Task) -> None:
        """Record it; the phase stays what the runner reports."""
        self.milestone("cancel_requested", task.task_id)
        self.recorder.add_from_daemon(
            PhaseEntry(
                at=self.stamp(),
                phase="cancel_requested",
                event="supervisor_cancel_requested",
                attrs={},
                detail=task.task_id,
                task_id=task.task_id,
                command_id=task.command_id if isinstance(task, BaseRequestTask) else None,
            ),
            self.context,
        )

    def process_ended(self, cause: str, blame: str) -> None:
        """Record the end of a process: one that was killed could not do that itself."""
        self.recorder.add_from_daemon(
            PhaseEntry(
                at=self.stamp(),
                phase="error",
                event="runner_ended",
                detail=cause,
                attrs={"blame": blame.lower()},
            ),
            self.context,
        )

    # --- reading ---

    @property
    def context(self) -> RunnerDiagnosticContext:
        """Describes the current process; every entry keeps the context it was made in."""
        if self._context.pid != self.pid:
            self._context = self._context_of(self.pid)
        return self._context

    def _context_of(self, pid: int | None) -> RunnerDiagnosticContext:
        identity, shard = self.identity, self.identity.shard
        return RunnerDiagnosticContext(
            node_id=identity.node_id,
            runner_id=identity.runner_id,
            pid=pid,
            instance_id=identity.instance_id,
            model_id=shard.model_card.model_id,
            rank=shard.device_rank,
            world_size=shard.world_size,
            start_layer=shard.start_layer,
            end_layer=shard.end_layer,
            n_layers=shard.n_layers,
        )

    def diagnostics(self, tasks: TaskTable) -> RunnerStanding:
        """The record as it is now."""
        context, recorder = self.context, self.recorder
        # The task of the phase is only active while it is open.
        active = recorder.task_id is not None and tasks.find(recorder.task_id) is not None
        return RunnerStanding(
            runner_id=context.runner_id,
            instance_id=context.instance_id,
            node_id=context.node_id,
            model_id=context.model_id,
            device_rank=context.rank,
            world_size=context.world_size,
            start_layer=context.start_layer,
            end_layer=context.end_layer,
            n_layers=context.n_layers,
            pid=self.pid,
            process_alive=self.alive,
            exit_code=self.exit_code,
            status_kind=type(self.status).__name__,
            status_since=self._status_since,
            seconds_in_status=self._clock() - self.status_changed_at,
            phase=recorder.phase,
            phase_started_at=recorder.phase_started_at,
            seconds_in_phase=recorder.seconds_in_phase,
            last_progress_at=recorder.last_progress_at,
            active_task_id=recorder.task_id if active else None,
            active_command_id=recorder.command_id if active else None,
            phase_detail=recorder.detail,
            last_mlx_memory=recorder.memory,
            flight_recorder=recorder.entries,
            pending_task_ids=tasks.pending_ids,
            in_progress_tasks=tasks.in_progress(context.runner_id, context.model_id),
            completed_task_count=tasks.completed_count,
            cancelled_task_ids=tasks.cancelled_ids,
            last_task_sent_at=self._last_sent,
            last_event_received_at=None if self._last_event is None else self._last_event[0],
            last_event_type=None if self._last_event is None else self._last_event[1],
            milestones=self.milestones.shown(),
            live=self.heartbeat.shown(),
            pending_seconds=tasks.pending_s,
            waiting=self.wait.shown(),
            compute=self.compute,
        )


class RunnerHeartbeat:
    """The last heartbeat of a process, and for how long it has shown no change.

    `clock` is the daemon's: a frozen runner's own clock may have stopped with it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: Pulse | None = None
        self._received_at = self._changed_at = clock()

    def reset(self) -> None:
        """A new process has not sent one yet."""
        self._last = None

    def update(self, pulse: Pulse) -> None:
        before, self._last = self._last, pulse
        self._received_at = self._clock()
        if before is None or (before.step, before.moves) != (pulse.step, pulse.moves):
            self._changed_at = self._received_at

    def shown(self) -> RunnerLive | None:
        """For the timeline; None before the first heartbeat of the process."""
        pulse, now = self._last, self._clock()
        if pulse is None:
            return None
        silent_s = now - self._received_at
        return RunnerLive(
            busy=pulse.busy,
            step=pulse.step,
            moves=pulse.moves,
            site=pulse.site,
            site_seconds=0.0 if pulse.site is None else pulse.site_s + silent_s,
            silent_seconds=silent_s,
            still_seconds=now - self._changed_at,
        )


class WaitStatus:
    """What a runner without a process waits for: files, memory, or the other ranks.

    `begin` a wait, `end` it. Waits never overlap.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reason: WaitReason | None = None
        self._since = 0.0
        self._detail: str | None = None
        self._progress: ReadProgress | None = None

    def begin(
        self,
        reason: WaitReason,
        *,
        detail: str | None = None,
        progress: ReadProgress | None = None,
    ) -> None:
        """The same reason again keeps its start time."""
        if reason != self._reason:
            self._reason, self._since = reason, self._clock()
        self._detail, self._progress = detail, progress

    def end(self) -> None:
        self._reason = self._detail = self._progress = None

    def shown(self) -> RunnerWaiting | None:
        """For the timeline; None when it waits for nothing."""
        if self._reason is None:
            return None
        files = None if self._progress is None else self._progress()
        waiting = RunnerWaiting(
            reason=self._reason, seconds=self._clock() - self._since, detail=self._detail
        )
        if files is None:
            return waiting
        return waiting.model_copy(
            update={
                "detail": files.detail,
                "done_bytes": files.done_bytes,
                "total_bytes": files.total_bytes,
                "bytes_per_second": files.bytes_per_second,
                "seconds_left": files.seconds_left,
                "still_seconds": files.idle_s,
            }
        )
