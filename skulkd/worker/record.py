"""Everything known about one runner, over all its processes: what diagnostics show.

Plain data, so that reading it never fails, whatever has become of the process.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from skulkd.runner.phase_frames import Entry
from skulkd.runner.protocol import (
    Computing,
    FromRunner,
    Output,
    Phase,
    PrefillProgress,
    Pulse,
    Status,
    TaskAcknowledged,
    TaskStatus,
    TaskTrace,
)
from skulkd.wire.base import format_offset
from skulkd.wire.diagnostics import RunnerDiagnosticContext
from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.runners import RunnerIdle, RunnerStatus
from skulkd.wire.shards import ShardMetadata
from skulkd.wire.tasks import BaseRequestTask, Task
from skulkd.wire.timeline import RunnerCompute, RunnerStanding
from skulkd.worker.flight_recorder import FlightRecorder
from skulkd.worker.milestones import Milestones
from skulkd.worker.pulse import PulseView
from skulkd.worker.task_book import TaskBook
from skulkd.worker.waiting import WaitingView

# The names under which clients of the reference know these.
_EVENT_NAMES: dict[type[FromRunner], str] = {
    Status: "RunnerStatusUpdated",
    TaskStatus: "TaskStatusUpdated",
    TaskAcknowledged: "TaskAcknowledged",
    Output: "ChunkGenerated",
    PrefillProgress: "PrefillProgressChunk",
    TaskTrace: "TracesCollected",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Which runner this is; the same for all its processes."""

    node_id: NodeId
    instance_id: InstanceId
    runner_id: RunnerId
    shard: ShardMetadata


class RunnerRecord:
    """Changed by the supervisor, read by anybody."""

    def __init__(
        self,
        identity: Identity,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._clock = clock
        self._now = now
        self.identity = identity
        self.book = TaskBook(clock)
        self.recorder = FlightRecorder(self.stamp(), clock)
        self.pulse = PulseView(clock)
        self.waiting = WaitingView(clock)
        self.milestones = Milestones()
        self.compute: RunnerCompute | None = None
        """What the present process computes with, once it has told."""
        self.pid: int | None = None
        self.alive = False
        self.exit_code: int | None = None
        self.reported = False
        """Whether the present process has ever told its status."""
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
        self.milestones.add(self.stamp(), name, detail)

    # The process

    def starting(self) -> None:
        """Another process is about to be started for this runner."""
        self.pid = self.exit_code = self.compute = None
        self.reported = False
        self.started_at = self.heard_at = self._clock()
        self.recorder.restart(self.stamp())
        self.pulse.restart()
        self.waiting.end()
        self.set_status(RunnerIdle())
        self.milestone("process_start_requested")

    def started(self, pid: int) -> None:
        self.pid, self.alive = pid, True
        self.milestone("process_started", f"pid={pid}")

    def ended(self, exit_code: int | None) -> None:
        """The process is gone; None when it could not be made to go."""
        self.exit_code = exit_code
        self.alive = self.pid is not None and exit_code is None

    def set_status(self, status: RunnerStatus) -> None:
        """Also for what the supervisor concludes itself."""
        if type(status) is not type(self.status):
            self._status_since = self.stamp()
            self.status_changed_at = self._clock()
            self.milestone("status_changed", type(status).__name__)
        self.status = status

    # Messages

    def heard(self, message: FromRunner, size_bytes: int) -> None:
        """Note that the runner spoke, and what phase it is in."""
        if isinstance(message, Pulse):
            # No progress: a runner that hangs has a pulse, too.
            self.pulse.take(message)
            return
        self.heard_at = self._clock()
        if isinstance(message, Computing):
            self.compute = message.compute
            return
        stamp = self.stamp()
        if isinstance(message, Phase):
            self.recorder.apply(message, size_bytes, self.context)
            detail = message.entry.detail or message.entry.event
            self.milestones.add(stamp, f"phase:{message.entry.phase}", detail[:200])
            return
        name = _EVENT_NAMES[type(message)]
        self._last_event = (stamp, name)
        self.milestones.add(stamp, "event_received", name)

    def sent(self, task: Task) -> None:
        self.book.send(task)
        self._last_sent = self.stamp()
        self.milestone("task_sent", f"{type(task).__name__}:{task.task_id}")

    def cancelling(self, task_id: TaskId) -> None:
        """A mark on the record; the phase stays what the runner says it is."""
        self.milestone("cancel_requested", task_id)
        entry = self.book.find(task_id)
        task = None if entry is None else entry.task
        self.recorder.mark(
            Entry(
                at=self.stamp(),
                phase="cancel_requested",
                event="supervisor_cancel_requested",
                attrs={},
                detail=task_id,
                task_id=task_id,
                command_id=task.command_id if isinstance(task, BaseRequestTask) else None,
            ),
            self.context,
        )

    def concluded(self, cause: str, blame: str) -> None:
        """A mark for the end of a process: one that was killed leaves no last words itself."""
        self.recorder.mark(
            Entry(
                at=self.stamp(),
                phase="error",
                event="runner_ended",
                detail=cause,
                attrs={"blame": blame.lower()},
            ),
            self.context,
        )

    # Reading

    @property
    def context(self) -> RunnerDiagnosticContext:
        """The present process; every entry has the one it is of."""
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

    def diagnostics(self) -> RunnerStanding:
        """The record as it is at this moment."""
        context, recorder, book = self.context, self.recorder, self.book
        # What the phase belongs to is only active while it has not ended.
        active = recorder.task_id is not None and book.find(recorder.task_id) is not None
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
            pending_task_ids=book.pending_ids,
            in_progress_tasks=book.in_progress(context.runner_id, context.model_id),
            completed_task_count=book.completed_count,
            cancelled_task_ids=book.cancelled_ids,
            last_task_sent_at=self._last_sent,
            last_event_received_at=None if self._last_event is None else self._last_event[0],
            last_event_type=None if self._last_event is None else self._last_event[1],
            milestones=self.milestones.shown(),
            live=self.pulse.shown(),
            pending_seconds=book.pending_s,
            waiting=self.waiting.shown(),
            compute=self.compute,
        )
