"""Supervises one runner process, from its start to its end.

Speaks the protocol, enforces deadlines from outside, and always reaps the process. Nothing the
runner does, or fails to do, makes the supervisor wait without a limit.
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
from skulkd.runner.framing import FrameError
from skulkd.runner.protocol import Ack, Cancel, GenerationOptions, RunTask
from skulkd.wire.ids import TaskId
from skulkd.wire.runners import RunnerFailed, RunnerShutdown, RunnerStatus
from skulkd.wire.tasks import Shutdown, Task
from skulkd.worker.deadlines import RunnerActivity, next_deadline
from skulkd.worker.diagnostics import RunnerRecord
from skulkd.worker.endings import Blame, Ending, exited, killed, not_started, truncate
from skulkd.worker.launch import Prepared
from skulkd.worker.options import StopSteps, WorkerOptions
from skulkd.worker.process import RunnerProcess, Spawn, state_of
from skulkd.worker.refusals import NotReady, RequestTooLarge
from skulkd.worker.task_stream import TaskEnded, TaskStream
from skulkd.worker.task_table import TaskTable

_log = logging.getLogger(__name__)
_DRAIN_S = 2.0
_RUNNER_FAILED = "runner_failed"
STOPPED = "stopped by a signal"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the process has to be killed."""

    why: str
    blame: Blame = Blame.CULPRIT


class Supervisor:
    """`run` it once. `on_change` is called whenever the worker should plan again."""

    def __init__(
        self,
        prepared: Prepared,
        record: RunnerRecord,
        tasks: TaskTable,
        options: WorkerOptions,
        spawn: Spawn,
        on_change: Callable[[], None],
        on_trace: Callable[[protocol.TaskTrace], None],
    ) -> None:
        self._prepared = prepared
        self._record = record
        self._tasks = tasks
        self._options = options
        self._spawn = spawn
        self._on_change = on_change
        self._on_trace = on_trace
        shard = prepared.configure.shard
        self._grouped = shard.world_size > 1
        self._follows = shard.device_rank > 0
        self._process: RunnerProcess | None = None
        self._stopping = False
        self._abort_reason: str | None = None
        self._abort_ending: Ending | None = None
        self._steps: set[TaskId] = set()
        self._failed_step: str | None = None
        self._stopped_since: float | None = None

    # --- for the owner of the runner ---

    @property
    def spawning(self) -> bool:
        """Whether there is no process yet."""
        return self._process is None

    async def run(self) -> Ending:
        """Start the process and return when it has exited and is reaped."""
        self._record.starting()
        self._on_change()
        try:
            self._process = await self._spawn(self._prepared.launch)
        except OSError as error:
            return not_started(str(error), restart_helps=True)
        try:
            return await self._supervise(self._process)
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
        """Send a task. Raises NotReady when it cannot be sent, RequestTooLarge."""
        frame = _frame(task, generation)
        ending = self._stopping or self._abort_reason is not None
        process = None if ending else self._process
        if process is None or not process.send(frame):
            self._record.milestone("task_send_failed", f"{type(task).__name__}:{task.task_id}")
            instance_id = self._record.identity.instance_id
            raise NotReady(instance_id, self._record.status, "it takes no messages")
        self._tasks.add(task, stream)

    def check_size(self, task: Task, generation: GenerationOptions) -> None:
        """Raises RequestTooLarge; call this before other ranks are asked to take part."""
        _frame(task, generation)

    def request_step(self, task: Task) -> None:
        """Ask the process to connect, load or warm up. Raises NotReady."""
        self._steps.add(task.task_id)
        self.submit(task)

    def cancel(self, task_id: TaskId) -> None:
        """Ask the runner to drop a task; a deadline enforces that it does."""
        entry = self._tasks.find(task_id)
        if entry is not None:
            self._record.cancel_requested(entry.task)
        self._send(Cancel(task_id=task_id))
        self._on_change()

    def abort(self, why: str) -> None:
        """Kill the process without asking: it may hang inside MLX forever."""
        if self._abort_reason is None:
            self._abort_reason = why
            if self._process is not None:
                self._kill(self._process, why)

    async def stop(self, steps: StopSteps, leaving: TaskEnded) -> None:
        """Ask, SIGTERM, SIGKILL. Open requests end at once, with `leaving`."""
        if not self._stopping:
            self._stopping = True
            self._record.milestone("shutdown_requested")
            self._tasks.close(leaving)
            self._ask_to_stop()
        if self._process is not None and not await self._process.end(steps):
            _log.error("runner process %d does not end, not even by SIGKILL", self._process.pid)

    # --- the process ---

    async def _supervise(self, process: RunnerProcess) -> Ending:
        self._record.started(process.pid)
        if self._stopping:
            process.send_signal(signal.SIGKILL)
        if self._abort_reason is not None:
            self._kill(process, self._abort_reason)
        self._send(self._prepared.configure)
        reading = asyncio.create_task(self._read(process))
        watching = asyncio.create_task(self._watch())
        exiting = asyncio.create_task(process.exited())
        try:
            await asyncio.wait({reading, watching, exiting}, return_when=asyncio.FIRST_COMPLETED)
            fault = await self._find_fault(process, reading, watching)
            if fault is not None:
                self._record.milestone("runner_check", fault.why)
                process.send_signal(signal.SIGKILL)
            await process.exited(self._options.stop.kill_s)
            # Its children would keep the pipes open.
            process.send_signal(signal.SIGKILL)
            await asyncio.wait({reading}, timeout=_DRAIN_S)
            if reading.done():
                reading.result()  # raise an error of our own instead of blaming the runner
            await process.log.finished(_DRAIN_S)
        finally:
            for task in (reading, watching, exiting):
                task.cancel()
            await asyncio.gather(reading, watching, exiting, return_exceptions=True)
        return self._conclude(process, fault)

    def _kill(self, process: RunnerProcess, why: str) -> None:
        """Kill it and remember how it ended, unless it has exited by itself."""
        state = state_of(process.pid)
        phase = self._record.recorder.phase
        if state == "stopped":
            self._abort_ending = killed(STOPPED, phase)
        elif state != "gone":
            self._abort_ending = Ending(why, True, phase, blame=Blame.FOLLOWED)
        process.send_signal(signal.SIGKILL)

    async def _find_fault(
        self,
        process: RunnerProcess,
        reading: asyncio.Task[str | None],
        watching: asyncio.Task[Fault],
    ) -> Fault | None:
        """Why the runner must be killed; None when it has exited or is being stopped."""
        if watching.done():
            return watching.result()
        if not reading.done():
            return None
        if (problem := reading.result()) is not None:
            return Fault(problem)
        timeout_s = self._options.timeouts.exit_s
        has_exited = await process.exited(timeout_s)
        return None if has_exited else Fault(f"closed its pipe and ran on for {timeout_s:g} s")

    def _conclude(self, process: RunnerProcess, fault: Fault | None) -> Ending:
        record = self._record
        record.ended(process.exit_code)
        if self._stopping:
            self._tasks.close(TaskEnded("TimedOut"))
            return Ending("stopped as asked", restart_helps=True)
        phase, status = record.recorder.phase, record.status
        message = status.error_message if isinstance(status, RunnerFailed) else None
        if self._abort_ending is not None and process.exit_code is not None:
            ending = self._abort_ending
        elif fault is not None and process.exit_code is not None:
            ending = killed(fault.why, phase, message, fault.blame)
        else:
            ending = exited(
                process.exit_code,
                phase,
                reported=record.reported,
                message=message,
                last_line=process.log.last_line,
            )
        record.set_status(RunnerFailed(error_message=ending.reason))
        record.process_ended(ending.summary, ending.blame.name)
        return ending

    # --- messages ---

    async def _read(self, process: RunnerProcess) -> str | None:
        """Handle messages until the pipe ends; the problem if one cannot be decoded."""
        try:
            async for frame in process.frames():
                self._handle(protocol.decode_from_runner(frame), len(frame))
        except (FrameError, protocol.ProtocolError) as error:
            # A runner that is killed often leaves half a frame.
            return None if process.at_eof else f"sent what is no message: {error}"
        return None

    def _handle(self, message: protocol.FromRunner, size_bytes: int) -> None:
        self._record.message_received(message, size_bytes)
        match message:
            case protocol.Status():
                self._record.reported = True
                self._record.set_status(_truncated(message.status))
                self._on_change()
            case protocol.TaskAcknowledged():
                self._tasks.acknowledge(message.task_id)
            case protocol.TaskStatus():
                self._check_step(message)
                # In a group the cause may be another rank: its leader ends the requests.
                if not (self._grouped and message.error_type == _RUNNER_FAILED):
                    self._tasks.update(message)
                self._on_change()
            case protocol.Output() | protocol.PrefillProgress():
                if not self._tasks.push(message, size_bytes):
                    self._tasks.request_cancel(message.task_id)
                    self.cancel(message.task_id)
            case protocol.TaskTrace():
                self._on_trace(message)
            case protocol.Pulse() | protocol.Computing():
                pass  # kept by the record
            case protocol.Phase():
                if message.sequence is not None:
                    self._send(Ack(sequence=message.sequence))
            case _ as unreachable:
                assert_never(unreachable)

    def _check_step(self, message: protocol.TaskStatus) -> None:
        """A runner that cannot connect, load or warm up has to be restarted."""
        entry = self._tasks.find(message.task_id)
        if message.status == "Failed" and entry is not None and message.task_id in self._steps:
            kind = type(entry.task).__name__
            self._failed_step = truncate(f"{kind} failed: {message.error_message}")

    def _send(self, message: protocol.ToRunner) -> None:
        # A message that cannot be sent leads to an exceeded deadline.
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
            self._tasks.add(task)
            self._send(RunTask(task=task))

    # --- deadlines ---

    async def _watch(self) -> Fault:
        """Wait until a deadline is exceeded."""
        while True:
            fault = self._overdue()
            await asyncio.sleep(self._options.timeouts.poll_s)
            # Twice in a row: messages may be unread because the event loop was busy.
            if fault is not None and fault == self._overdue():
                return fault

    def _overdue(self) -> Fault | None:
        if self._failed_step is not None:
            return Fault(self._failed_step)
        if self._stopping:
            return None
        if self._is_stopped():
            return Fault(STOPPED)
        deadline = next_deadline(self._activity(), self._options.runner, self._options.timeouts)
        if deadline is None or time.monotonic() < deadline.at:
            return None
        return Fault(deadline.why, Blame.WAITED)

    def _is_stopped(self) -> bool:
        """Whether a signal has stopped the process for too long while work waits for it."""
        needed = self._grouped or self._tasks.open
        process = self._process
        stopped = needed and process is not None and state_of(process.pid) == "stopped"
        now = time.monotonic()
        self._stopped_since = (self._stopped_since or now) if stopped else None
        # The other ranks of a group wait for it, and use a core each while they do.
        limit_s = 0.0 if self._grouped else self._options.timeouts.stopped_s
        return self._stopped_since is not None and now - self._stopped_since >= limit_s

    def _activity(self) -> RunnerActivity:
        record = self._record
        failed = isinstance(record.status, RunnerFailed | RunnerShutdown)
        return RunnerActivity(
            started_at=record.started_at,
            heard_at=record.heard_at,
            reported=record.reported,
            failed_at=record.status_changed_at if failed else None,
            open=self._tasks.open,
            follows=self._follows,
        )


def _frame(task: Task, generation: GenerationOptions | None) -> bytes:
    try:
        return protocol.encode(RunTask(task=task, generation=generation))
    except FrameError as error:
        raise RequestTooLarge(str(error)) from error


def _truncated(status: RunnerStatus) -> RunnerStatus:
    if isinstance(status, RunnerFailed) and status.error_message is not None:
        return RunnerFailed(error_message=truncate(status.error_message))
    return status
