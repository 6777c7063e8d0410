"""Runners forked from a parent that has imported everything: milliseconds instead of seconds.

Linux only. Whenever that does not work, a runner is started as an ordinary process.
"""

import asyncio
import logging
import signal

from skulkd.runner.zygote_client import Zygote, ZygoteError
from skulkd.worker.process import Ends, Launch, RunnerProcess, spawn_runner

_log = logging.getLogger(__name__)


class Forked:
    """A child of the zygote, which reaps it and tells us."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.create_task(self._watch(zygote))

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def _watch(self, zygote: Zygote) -> int:
        try:
            self.returncode = await zygote.wait(self.pid)
        except ZygoteError:
            # The kernel kills the children of a zygote that dies.
            self.returncode = -signal.SIGKILL
        return self.returncode


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
                # Its children may be well, so it stays; but it has lost our trust.
                self._given_up = True
                _log.warning("runners are no longer forked, which is slower: %s", error)
        return await spawn_runner(launch)

    async def close(self) -> None:
        self._given_up = True
        if self._zygote is None:
            return
        if not self._zygote.done():
            self._zygote.cancel()
        elif not self._zygote.cancelled() and self._zygote.exception() is None:
            await self._zygote.result().close()

    async def _fork(self, launch: Launch) -> RunnerProcess:
        if self._zygote is None:
            self._zygote = asyncio.create_task(Zygote.start(launch.environ))
        # Shielded: others may wait for the same zygote.
        zygote = await asyncio.shield(self._zygote)
        with Ends() as ends:
            pid = await zygote.fork(ends.their_in, ends.their_out, ends.their_log, {})
            return await ends.attach(Forked(zygote, pid), launch, leads_group=False)
