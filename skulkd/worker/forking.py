"""Forks runners from a parent that has imported everything: milliseconds instead of seconds.

Linux only. When forking fails, a runner is started as an ordinary process.
"""

import asyncio
import contextlib
import logging
import os
import signal

from skulkd.runner.zygote_client import Zygote, ZygoteError
from skulkd.worker.process import Launch, RunnerPipes, RunnerProcess, spawn_runner

_log = logging.getLogger(__name__)
# From the end of a runner until the zygote has reaped it and reported its exit code.
_REPORT_S = 2.0


class ForkedProcess:
    """A child of the zygote, which reaps it and reports its exit code.

    Its end is detected here, not by the zygote: one that hangs must not hide a dead runner.
    """

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        # A pid may be reused by another process; a pidfd is not.
        self._pidfd = _open_pidfd(pid)
        self._ended = asyncio.create_task(self._watch(zygote))

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError when it is gone."""
        if self._pidfd is None:
            raise ProcessLookupError(self.pid)
        signal.pidfd_send_signal(self._pidfd, number)

    async def _watch(self, zygote: Zygote) -> int:
        try:
            await self._end()
            async with asyncio.timeout(_REPORT_S):
                self.returncode = await zygote.wait(self.pid)
        except (ZygoteError, TimeoutError):
            # The kernel kills the children of a zygote that dies.
            self.returncode = -signal.SIGKILL
        return self.returncode

    async def _end(self) -> None:
        if self._pidfd is None:
            return
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(self._pidfd, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None  # ended and reaped already


class ForkingSpawn:
    """A `Spawn`. The first call waits for the zygote; `close` ends it and what it has forked."""

    def __init__(self) -> None:
        self._zygote: asyncio.Task[Zygote] | None = None
        self._given_up = not Zygote.supported()

    async def __call__(self, launch: Launch) -> RunnerProcess:
        """Raises OSError."""
        if not self._given_up:
            try:
                return await self._fork(launch)
            except ZygoteError as error:
                # Its children may be fine, so it keeps running; but nothing more is forked.
                self._given_up = True
                _log.warning("runners are no longer forked, which is slower: %s", error)
        return await spawn_runner(launch)

    async def close(self) -> None:
        self._given_up = True
        if self._zygote is None:
            return
        if not self._zygote.done():
            self._zygote.cancel()
            with contextlib.suppress(asyncio.CancelledError, ZygoteError):
                await self._zygote
        elif not self._zygote.cancelled() and self._zygote.exception() is None:
            await self._zygote.result().close()

    async def _fork(self, launch: Launch) -> RunnerProcess:
        if self._zygote is None:
            self._zygote = asyncio.create_task(Zygote.start(launch.environ))
        # Shielded: others may wait for the same zygote.
        zygote = await asyncio.shield(self._zygote)
        with RunnerPipes() as pipes:
            pid = await zygote.fork(pipes.their_in, pipes.their_out, pipes.their_log, {})
            return await pipes.attach(ForkedProcess(zygote, pid), launch, leads_group=False)
