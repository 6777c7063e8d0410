"""The owner of one runner process, from its start to its end.

Speaks the protocol, keeps the record, enforces deadlines from outside, and always reaps. Nothing
the runner does, or does not do, makes it wait without a limit.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never
from uuid import uuid4

from skulkd.runner import protocol
from skulkd.runner.framing import FrameError, read_frame
from skulkd.runner.protocol import Ack, Cancel, Configure, GenerationOptions, RunTask
from skulkd.wire.ids import TaskId
from skulkd.wire.runners import RunnerFailed, RunnerShutdown, RunnerStatus
from skulkd.wire.tasks import Shutdown, Task
from skulkd.worker.causes import Blame, Ending, cut, ended, killed, not_started
from skulkd.worker.deadlines import Standing, next_deadline
from skulkd.worker.desk import TaskDesk
from skulkd.worker.options import StopSteps, WorkerOptions
from skulkd.worker.pacing import HalfOfTheTime
from skulkd.worker.process import Launch, RunnerProcess, Spawn, state_of
from skulkd.worker.record import RunnerRecord
from skulkd.worker.refusals import NotReady, RequestTooLarge
from skulkd.worker.task_stream import RUNNER_CRASHED, TaskEnded, TaskStream

_log = logging.getLogger(__name__)
_DRAIN_S = 2.0
_RUNNER_FAILED = "runner_failed"
STOPPED = "stopped by a signal"


@dataclass(frozen=True, slots=True)
class Duty:
    """What a supervisor is given: what to start, with what, and where to write it down."""

    configure: Configure
    launch: Launch
    record: RunnerRecord
    desk: TaskDesk
    options: WorkerOptions

    @property
    def grouped(self) -> bool:
        """Whether there are other ranks, which have to end together with this one."""
        return self.configure.shard.world_size > 1

    @property
    def follows(self) -> bool:
        return self.configure.shard.device_rank > 0


class Supervisor:
    """`run` it once. `on_change` is called whenever the planner should look again."""

    def __init__(
        self,
        duty: Duty,
        spawn: Spawn,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._duty = duty
        self._record = duty.record
        self._desk = duty.desk
        self._options = duty.options
        self._spawn = spawn
        self._on_change = on_change
        self._clock = clock
        self._process: RunnerProcess | None = None
        self._leaving = False
        self._aborted = False
        self._abort_reason = ""
        self._with_group: Ending | None = None
        self._refused: str | None = None
        self._late: str | None = None
        self._stopped_at: float | None = None
        self.on_trace: Callable[[protocol.TaskTrace], None] = lambda _: None
        """Takes what this rank measured of a traced task."""
        self.asked: set[type[Task]] = set()
        """Steps of its life that this process was asked to take."""

    # --- for the worker ---

    @property
    def spawning(self) -> bool:
        """Whether there is no process yet."""
        return self._process is None

    async def run(self) -> Ending:
        """Start the runner and stay with it until it is gone and reaped."""
        self._record.starting()
        self._on_change()
        try:
            self._process = await self._spawn(self._duty.launch)
        except OSError as error:
            return not_started(str(error), restart_helps=True)
        try:
            return await self._accompany(self._process)
        finally:
            if self._process.exit_code is None:
                self._process.send_signal(signal.SIGKILL)
                await self._process.exited(_DRAIN_S)
            self._process.close()

    def submit(
        self,
        task: Task,
        generation: GenerationOptions | None = None,
        stream: TaskStream | None = None,
    ) -> None:
        """Send a task. Raises NotReady when it cannot get through, RequestTooLarge."""
        frame = _frame(task, generation)
        process = None if self._leaving or self._aborted else self._process
        if process is None or not process.send(frame):
            self._record.milestone("task_send_failed", f"{type(task).__name__}:{task.task_id}")
            instance_id = self._record.identity.instance_id
            raise NotReady(instance_id, self._record.status, "it takes no messages")
        self._desk.opened(task, stream)

    def check_size(self, task: Task, generation: GenerationOptions) -> None:
        """Raises RequestTooLarge, before anybody else is asked to take part in it."""
        _frame(task, generation)

    def ask(self, task: Task) -> None:
        """Send a step of the runner's life; each is asked for once. Raises NotReady."""
        self.asked.add(type(task))
        self.submit(task)

    def cancel(self, task_id: TaskId) -> None:
        """Ask the runner to drop a task; that it must obey is one of the deadlines."""
        self._record.cancelling(task_id)
        self._send(Cancel(task_id=task_id))
        self._on_change()

    def abort(self, why: str = "ended with its group") -> None:
        """Kill it, because its group has ended or somebody wants a new one.

        Not asked: it may hang for ever inside MLX.
        """
        if self._aborted:
            return
        self._aborted = True
        self._abort_reason = why
        if self._process is not None:
            self._kill_with_group(self._process)

    async def stop(self, steps: StopSteps, leaving: TaskEnded) -> None:
        """Ask, SIGTERM, SIGKILL. Open requests end at once, with `leaving`."""
        if not self._leaving:
            self._leaving = True
            self._record.milestone("shutdown_requested")
            self._desk.close(leaving)
            self._ask_to_stop()
        if self._process is not None and not await self._process.end(steps):
            _log.error("runner process %d does not end, not even by SIGKILL", self._process.pid)

    # --- the process ---

    async def _accompany(self, process: RunnerProcess) -> Ending:
        self._record.started(process.pid)
        if self._leaving:
            process.send_signal(signal.SIGKILL)
        if self._aborted:
            self._kill_with_group(process)
        self._send(self._duty.configure)
        reading = asyncio.create_task(self._read(process.reader))
        watching = asyncio.create_task(self._watch())
        exiting = asyncio.create_task(process.exited())
        try:
            await asyncio.wait({reading, watching, exiting}, return_when=asyncio.FIRST_COMPLETED)
            fault = await self._fault(process, reading, watching)
            if fault is not None:
                self._record.milestone("runner_check", fault)
                process.send_signal(signal.SIGKILL)
            await process.exited(self._options.stop.kill_s)
            # Whatever it started would hold the pipes open.
            process.send_signal(signal.SIGKILL)
            await asyncio.wait({reading}, timeout=_DRAIN_S)
            if reading.done():
                reading.result()  # an error of ours must not pass for the runner's end
            await process.log.finished(_DRAIN_S)
        finally:
            for task in (reading, watching, exiting):
                task.cancel()
            await asyncio.gather(reading, watching, exiting, return_exceptions=True)
        return self._conclude(process, fault)

    def _kill_with_group(self, process: RunnerProcess) -> None:
        state = state_of(process.pid)
        phase = self._record.recorder.phase
        if state == "stopped":
            self._with_group = killed(STOPPED, phase)
        elif state != "gone":
            self._with_group = Ending(self._abort_reason, True, phase, blame=Blame.FOLLOWED)
        process.send_signal(signal.SIGKILL)

    async def _fault(
        self,
        process: RunnerProcess,
        reading: asyncio.Task[str | None],
        watching: asyncio.Task[str],
    ) -> str | None:
        """What the runner must be killed for; None when it has ended or is being stopped."""
        if watching.done():
            return watching.result()
        if not reading.done():
            return None
        if (problem := reading.result()) is not None:
            return problem
        silent_s = self._options.patience.last_words_s
        ended_itself = await process.exited(silent_s)
        return None if ended_itself else f"closed its pipe and ran on for {silent_s:g} s"

    def _conclude(self, process: RunnerProcess, fault: str | None) -> Ending:
        record = self._record
        record.ended(process.exit_code)
        phase, status = record.recorder.phase, record.status
        words = status.error_message if isinstance(status, RunnerFailed) else None
        if self._leaving:
            self._desk.close(TaskEnded("TimedOut"))
            return Ending("stopped as asked", restart_helps=True)
        if self._with_group is not None and process.exit_code is not None:
            ending = self._with_group
        elif fault is not None and process.exit_code is not None:
            blame = Blame.WAITED if fault == self._late else Blame.CULPRIT
            ending = killed(fault, phase, words, blame)
        else:
            ending = ended(
                process.exit_code,
                phase,
                reported=record.reported,
                words=words,
                last_line=process.log.last_line,
            )
        record.set_status(RunnerFailed(error_message=ending.reason))
        record.concluded(ending.summary, ending.blame.name)
        if self._duty.grouped:
            return ending  # what the requests are told comes from the whole group
        model_id = record.identity.shard.model_card.model_id
        message = f"the runner of {model_id} ended before it finished ({ending.summary})"
        self._desk.close(TaskEnded("Failed", RUNNER_CRASHED, f"{message}; ask again"))
        return ending

    # --- messages ---

    async def _read(self, reader: asyncio.StreamReader) -> str | None:
        """Take messages until the pipe ends; the problem when it brings what is no message."""
        pace = HalfOfTheTime(self._clock)
        try:
            while (frame := await read_frame(reader)) is not None:
                with pace:
                    self._take(protocol.decode_from_runner(frame), len(frame))
                await pace.rest()
        except (FrameError, protocol.ProtocolError) as error:
            # A runner that is killed is often cut off in the middle of a frame.
            return None if reader.at_eof() else f"sent what is no message: {error}"
        return None

    def _take(self, message: protocol.FromRunner, size_bytes: int) -> None:
        self._record.heard(message, size_bytes)
        match message:
            case protocol.Status():
                self._record.reported = True
                self._record.set_status(_bearable(message.status))
                self._on_change()
            case protocol.TaskAcknowledged():
                self._desk.acknowledged(message.task_id)
            case protocol.TaskStatus():
                self._note_refusal(message)
                # In a group the rank that notices knows least: its requests wait for the verdict.
                if not (self._duty.grouped and message.error_type == _RUNNER_FAILED):
                    self._desk.reported(message)
                self._on_change()
            case protocol.Output() | protocol.PrefillProgress():
                if not self._desk.progressed(message, size_bytes):
                    self._record.book.cancel(message.task_id)
                    self.cancel(message.task_id)
            case protocol.TaskTrace():
                self.on_trace(message)
            case protocol.Pulse() | protocol.Computing():
                pass  # kept by the record
            case protocol.Phase():
                if message.sequence is not None:
                    self._send(Ack(sequence=message.sequence))
            case _ as unreachable:
                assert_never(unreachable)

    def _note_refusal(self, message: protocol.TaskStatus) -> None:
        """A runner that will not load or warm up is of no use."""
        entry = self._record.book.find(message.task_id)
        if message.status == "Failed" and entry is not None and type(entry.task) in self.asked:
            self._refused = cut(f"{type(entry.task).__name__} failed: {message.error_message}")

    def _send(self, message: protocol.ToRunner) -> None:
        # A message that does not get through is missed by a deadline.
        if self._process is not None:
            self._process.send(protocol.encode(message))

    def _ask_to_stop(self) -> None:
        identity = self._record.identity
        task = Shutdown(
            task_id=TaskId(str(uuid4())),
            instance_id=identity.instance_id,
            runner_id=identity.runner_id,
        )
        if self._process is not None:
            self._desk.opened(task)
            self._send(RunTask(task=task))

    # --- deadlines ---

    async def _watch(self) -> str:
        """Wait until a deadline has passed; why it was one."""
        while True:
            overdue = self._overdue()
            await asyncio.sleep(self._options.patience.look_every_s)
            # Late twice in a row: what lies unread because this loop was busy is no silence.
            if overdue is not None and overdue == self._overdue():
                self._late = None if overdue in {STOPPED, self._refused} else overdue
                return overdue

    def _is_stopped(self) -> bool:
        """Whether a signal has stopped the process for too long while somebody waits for it."""
        waited_for = self._duty.grouped or self._record.book.open
        stopped = (
            waited_for and self._process is not None and state_of(self._process.pid) == "stopped"
        )
        now = self._clock()
        self._stopped_at = (self._stopped_at or now) if stopped else None
        # The other ranks of a group wait for it, and burn a core each while they do.
        patience_s = 0.0 if self._duty.grouped else self._options.patience.stopped_s
        return self._stopped_at is not None and now - self._stopped_at >= patience_s

    def _overdue(self) -> str | None:
        if self._leaving or self._refused is not None:
            return self._refused
        if self._is_stopped():
            return STOPPED
        record = self._record
        failed = isinstance(record.status, RunnerFailed | RunnerShutdown)
        standing = Standing(
            started_at=record.started_at,
            heard_at=record.heard_at,
            reported=record.reported,
            failed_at=record.status_changed_at if failed else None,
            open=record.book.open,
            follows=self._duty.follows,
        )
        deadline = next_deadline(standing, self._options.runner, self._options.patience)
        return None if deadline is None or self._clock() < deadline.at else deadline.why


def _frame(task: Task, generation: GenerationOptions | None) -> bytes:
    try:
        return protocol.encode(RunTask(task=task, generation=generation))
    except FrameError as error:
        raise RequestTooLarge(str(error)) from error


def _bearable(status: RunnerStatus) -> RunnerStatus:
    if isinstance(status, RunnerFailed) and status.error_message is not None:
        return RunnerFailed(error_message=cut(status.error_message))
    return status
