"""One runner as an operating system process: start it, exchange frames, end it. Knows no tasks."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

import psutil

from skulkd.runner.framing import read_frame
from skulkd.worker.log_files import LogPump
from skulkd.worker.options import LogLimits, StopSteps

# -P: the daemon's current directory must not be able to replace modules.
COMMAND = (sys.executable, "-P", "-m", "skulkd.runner")
# A runner that does not read must not fill our memory; one large prompt must still fit.
MAX_UNSENT_BYTES = 32 * 1024**2
_REAP_S = 2.0
SLICE_S = 0.01


@dataclass(frozen=True, slots=True)
class Launch:
    """What a process is started with."""

    environ: Mapping[str, str]
    log_file: Path
    log_limits: LogLimits


class ChildProcess(Protocol):
    """A child that is reaped elsewhere; `asyncio.subprocess.Process` is one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, number: int) -> None: ...


class RunnerProcess:
    """A process with its two pipes and its log.

    `leads_group`: it is the leader of a process group, which gets its signals.
    """

    def __init__(
        self,
        process: ChildProcess,
        reader: asyncio.StreamReader,
        pipes: tuple[asyncio.ReadTransport, asyncio.WriteTransport],
        log: LogPump,
        *,
        leads_group: bool,
    ) -> None:
        self._process = process
        self._pipes = pipes
        self._leads_group = leads_group
        self._reader = reader
        self.log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Negative: ended by that signal. None while it runs."""
        return self._process.returncode

    def send(self, frame: bytes) -> bool:
        """Queue a frame. False, and nothing sent, when the runner does not read."""
        pipe = self._pipes[1]
        if pipe.is_closing() or pipe.get_write_buffer_size() + len(frame) > MAX_UNSENT_BYTES:
            return False
        pipe.write(frame)
        return True

    async def frames(self) -> AsyncIterator[bytes]:
        """Frames from the runner until its pipe ends. Raises FrameError."""
        share = LoopShare(time.monotonic)
        while (frame := await read_frame(self._reader)) is not None:
            with share:
                yield frame
            await share.rest()

    @property
    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def exited(self, timeout_s: float | None = None) -> bool:
        """Wait until it has exited and is reaped. False on timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def send_signal(self, number: int) -> None:
        """To the runner, and to its children if it leads a process group."""
        # Already gone; macOS raises PermissionError for a group of zombies.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._leads_group:
                os.killpg(self.pid, number)
            elif self.exit_code is None:
                self._process.send_signal(number)

    async def end(self, steps: StopSteps) -> bool:
        """Wait for it to end by itself, then end it. False when even SIGKILL did not."""
        return (
            await self.exited(steps.ask_s)
            or await self._ended_by(signal.SIGTERM, steps.term_s)
            or await self._ended_by(signal.SIGKILL, steps.kill_s)
        )

    def close(self) -> None:
        """Close the pipes."""
        incoming, outgoing = self._pipes
        if not incoming.is_closing():
            incoming.close()
        if not outgoing.is_closing():
            outgoing.abort()

    async def _ended_by(self, number: signal.Signals, timeout_s: float) -> bool:
        self.send_signal(number)
        return await self.exited(timeout_s)


class LoopShare:
    """Limits a task to half of the event loop's time: `with` it around work, then `rest`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._window = self._entered = clock()
        self._spent = 0.0

    def __enter__(self) -> None:
        self._entered = self._clock()
        if self._entered - self._window > 2 * SLICE_S:
            self._window, self._spent = self._entered, 0.0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._spent += self._clock() - self._entered

    async def rest(self) -> None:
        """Sleep as long as the work took, once that is more than a slice."""
        if self._spent > SLICE_S:
            await asyncio.sleep(self._spent)
            self._window, self._spent = self._clock(), 0.0


def state_of(pid: int) -> Literal["running", "stopped", "gone"]:
    """`gone` includes zombies; `stopped` means by a signal, not by a debugger."""
    try:
        status = psutil.Process(pid).status()
    except psutil.Error:
        return "gone"
    if status in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
        return "gone"
    return "stopped" if status == psutil.STATUS_STOPPED else "running"


Spawn = Callable[[Launch], Awaitable[RunnerProcess]]


async def spawn_runner(launch: Launch, command: Sequence[str] = COMMAND) -> RunnerProcess:
    """Start a runner in a session of its own. Raises OSError.

    The runner itself arranges to end with the daemon (`runner/lifelines.py`, and the end of its
    pipe): code between fork and exec is not safe in a process with threads.
    """
    with RunnerPipes() as pipes:
        process = await asyncio.create_subprocess_exec(
            *command,
            *("--in-fd", str(pipes.their_in), "--out-fd", str(pipes.their_out)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipes.their_log,
            stderr=pipes.their_log,
            env=dict(launch.environ),
            pass_fds=(pipes.their_in, pipes.their_out),
            start_new_session=True,
        )
        return await pipes.attach(process, launch, leads_group=True)


class RunnerPipes:
    """Both ends of a runner's three pipes.

    Leaving the context closes the runner's ends, and ours unless they were attached.
    """

    def __init__(self) -> None:
        self.their_in, self._our_out = os.pipe()
        self._our_in, self.their_out = os.pipe()
        self._our_log, self.their_log = os.pipe()
        self._attached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for fd in (self.their_in, self.their_out, self.their_log):
            os.close(fd)
        if not self._attached:
            for fd in (self._our_out, self._our_in, self._our_log):
                os.close(fd)

    async def attach(
        self, process: ChildProcess, launch: Launch, *, leads_group: bool
    ) -> RunnerProcess:
        """The process with its pipes. On cancellation the process is killed and reaped."""
        self._attached = True
        connecting = asyncio.create_task(self._connect(process, launch, leads_group=leads_group))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            runner = await connecting
            runner.send_signal(signal.SIGKILL)
            await runner.exited(_REAP_S)
            runner.close()
            raise

    async def _connect(
        self, process: ChildProcess, launch: Launch, *, leads_group: bool
    ) -> RunnerProcess:
        loop = asyncio.get_running_loop()
        log = LogPump(self._our_log, launch.log_file, launch.log_limits)
        reader = asyncio.StreamReader()
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._our_in, "rb", 0)
        )
        outgoing, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(self._our_out, "wb", 0)
        )
        return RunnerProcess(process, reader, (incoming, outgoing), log, leads_group=leads_group)
