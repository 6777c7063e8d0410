"""One runner as an operating system process: start it, talk to it, end it. Knows no tasks."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self

import psutil

from skulkd.worker.log_files import LogPump
from skulkd.worker.options import LogLimits, StopSteps

# -P: the daemon's current directory must not be able to replace modules.
COMMAND = (sys.executable, "-P", "-m", "skulkd.runner")
# A runner that does not read must not fill our memory; one large prompt must still fit.
MAX_UNSENT_BYTES = 32 * 1024**2
_REAP_S = 2.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What a process is started with."""

    environ: Mapping[str, str]
    log_file: Path
    log_limits: LogLimits


class Handle(Protocol):
    """A child that somebody reaps; `asyncio.subprocess.Process` is one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, number: int) -> None: ...


class RunnerProcess:
    """A process, two pipes, and a log."""

    def __init__(
        self,
        process: Handle,
        reader: asyncio.StreamReader,
        pipes: tuple[asyncio.ReadTransport, asyncio.WriteTransport],
        log: LogPump,
        *,
        leads_group: bool,
    ) -> None:
        self._process = process
        self._pipes = pipes
        self._leads_group = leads_group
        self.reader = reader
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

    async def exited(self, timeout_s: float | None = None) -> bool:
        """Wait for the end and reap it. False when time ran out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def send_signal(self, number: int) -> None:
        """To the runner, and to whatever it started when it leads a group."""
        # Gone already; macOS answers so for a group of zombies.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._leads_group:
                os.killpg(self.pid, number)
            elif self.exit_code is None:
                self._process.send_signal(number)

    async def end(self, steps: StopSteps) -> bool:
        """Wait for it to end by itself, then make it. False when even SIGKILL did not."""
        return (
            await self.exited(steps.ask_s)
            or await self._ended_by(signal.SIGTERM, steps.term_s)
            or await self._ended_by(signal.SIGKILL, steps.kill_s)
        )

    def close(self) -> None:
        """Give up the pipes."""
        incoming, outgoing = self._pipes
        if not incoming.is_closing():
            incoming.close()
        if not outgoing.is_closing():
            outgoing.abort()

    async def _ended_by(self, number: signal.Signals, timeout_s: float) -> bool:
        self.send_signal(number)
        return await self.exited(timeout_s)


def state_of(pid: int) -> Literal["running", "stopped", "gone"]:
    """`gone` also when nobody has reaped it yet; `stopped` by a signal, not by a debugger."""
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

    That it ends with us is the runner's own first act, and the end of its pipe: code between
    fork and exec is not safe in a process with threads.
    """
    with Ends() as ends:
        process = await asyncio.create_subprocess_exec(
            *command,
            *("--in-fd", str(ends.their_in), "--out-fd", str(ends.their_out)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=ends.their_log,
            stderr=ends.their_log,
            env=dict(launch.environ),
            pass_fds=(ends.their_in, ends.their_out),
            start_new_session=True,
        )
        return await ends.attach(process, launch, leads_group=True)


class Ends:
    """Both ends of a runner's three pipes. Leaving closes theirs, and ours unless attached."""

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

    async def attach(self, process: Handle, launch: Launch, *, leads_group: bool) -> RunnerProcess:
        """The process with its pipes; nothing is left of it when we are cancelled meanwhile."""
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
        self, process: Handle, launch: Launch, *, leads_group: bool
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
