"""When this node's record of the cluster is written, in a thread of its own, one write at a time.

A master writes a command before it applies it (`commits.py`); a follower writes one as soon as it
has applied it and confirms that to the master. All other changes are written soon after they were
made. A write that fails is tried again until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from skulkd.cluster.disk import RecordFile
from skulkd.cluster.ledger import Ledger
from skulkd.cluster.messages import Record, Session

SAVE_DELAY_S = 0.2
"""Changes that nobody waits for are written together."""
RETRY_S = 5.0

log = logging.getLogger(__name__)

Saved = Callable[[Session | None, int, str], None]
"""Told after every write of the ledger: its session, its index, and why the write failed or ""."""


class Saving:
    """Not in the default thread pool: long copies of model files must not delay a command."""

    def __init__(self, file: RecordFile, ledger: Callable[[], Ledger], saved: Saved) -> None:
        self._file = file
        self._ledger = ledger
        self._saved = saved
        self._thread = ThreadPoolExecutor(1, "placements")
        self._seen: object = None
        self._due: float | None = None
        self._job: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()
        """Held from making a record until what it says is in the ledger."""
        self.problem = ""
        """Why the last write failed; empty when it did not."""

    def look(self, now: float) -> None:
        """Called with every tick: begin to write when something has changed or failed before."""
        if not self._is_whole():
            return
        if self._due is None and self._seen != _version(self._ledger()):
            self._due = now + SAVE_DELAY_S
        if self._due is not None and now >= self._due:
            self._start()

    def save_now(self) -> None:
        """Somebody waits for what is in the ledger now."""
        if self._is_whole():
            self._due = 0.0
            self._start()

    async def flush(self) -> None:
        """Return when the ledger as it is now is on disk. Raises OSError."""
        async with self.lock:
            await self._write_ledger()

    async def write(self, record: Record) -> None:
        """Return when the record is on disk. Raises OSError. The caller holds the lock."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._file.save, record)
        except OSError as error:
            self._failed(error)
            raise
        if self.problem:
            log.warning("placements are written to %s again", self._file.path)
            self.problem = ""

    async def finish(self) -> None:
        """Write what is not written yet; the last call."""
        if self._is_whole() and (self._seen is not None or self._due is not None):
            try:
                await self.flush()
            except OSError as error:
                log.warning("the last changes were not written: %s", error)
        self._thread.shutdown(wait=False)

    def _is_whole(self) -> bool:
        """Whether the ledger may replace what is on disk: a follower learns last what waits."""
        ledger = self._ledger()
        return ledger.session is not None and ledger.waiting_known

    def _start(self) -> None:
        if self._job is None:
            self._job = asyncio.create_task(self._save(), name="write placements")
            self._job.add_done_callback(self._ended)

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._job = None
        if not job.cancelled() and (error := job.exception()) is not None:
            log.error("writing placements failed", exc_info=error)
            self._due = time.monotonic() + RETRY_S
            self.problem = f"{type(error).__name__}: {error}"

    async def _save(self) -> None:
        while self._due is not None and time.monotonic() >= self._due:
            try:
                await self.flush()
            except OSError:
                return  # Already logged; the next tick after the retry time begins again.

    async def _write_ledger(self) -> None:
        ledger = self._ledger()
        self._due, self._seen = None, _version(ledger)
        session, record = ledger.session, ledger.record()
        try:
            await self.write(record)
        except OSError as error:
            self._saved(session, record.index, reason(error))
            raise
        self._saved(session, record.index, "")

    def _failed(self, error: OSError) -> None:
        self._due = time.monotonic() + RETRY_S
        if self.problem != reason(error):
            self.problem = reason(error)
            log.warning("placements cannot be written to %s: %s", self._file.path, self.problem)


def reason(error: OSError) -> str:
    """The system's words for it."""
    return error.strerror or str(error)


def _version(ledger: Ledger) -> object:
    """Differs when the record does."""
    state = ledger.state
    newest = next(reversed(ledger.deletions), None)
    members, lost = ledger.membership.others(), tuple(ledger.membership.lost.items())
    waiting = tuple(ledger.waiting)
    return (
        state.instances, state.tracing_enabled, ledger.session, waiting, newest, members, lost,
        ledger.tokens.version,
    )  # fmt: skip
