"""Writes this node's record of the cluster, in its own thread, one write at a time.

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
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.messages import ClusterRecord, MasterSession

SAVE_DELAY_S = 0.2
"""Changes that no command waits for are collected for this long."""
RETRY_S = 5.0

log = logging.getLogger(__name__)

Saved = Callable[[MasterSession | None, int, str], None]
"""Called after every write with session, index and the error message, empty on success."""


class RecordWriter:
    """Has its own thread, because copies of model files occupy the default pool for long."""

    def __init__(
        self, file: RecordFile, journal: Callable[[], JournalReplica], saved: Saved
    ) -> None:
        self._file = file
        self._journal = journal
        self._saved = saved
        self._thread = ThreadPoolExecutor(1, "placements")
        self._seen: object = None
        self._due: float | None = None
        self._job: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()
        """Held from creating a record until its content is applied to the journal."""
        self.problem = ""
        """Why the last write failed; empty when it did not."""

    def save_if_due(self, now: float) -> None:
        """Called with every tick: start a write after a change or a failed write."""
        if not self._is_complete():
            return
        if self._due is None and self._seen != _version(self._journal()):
            self._due = now + SAVE_DELAY_S
        if self._due is not None and now >= self._due:
            self._start()

    def save_now(self) -> None:
        """Write the journal at once, because a command waits for it."""
        if self._is_complete():
            self._due = 0.0
            self._start()

    async def flush(self) -> None:
        """Write the journal as it is now. Raises OSError."""
        async with self.lock:
            await self._write_journal()

    async def write(self, record: ClusterRecord) -> None:
        """Write the record to disk. Raises OSError. The caller holds the lock."""
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
        """Write remaining changes and stop the thread."""
        if self._is_complete() and (self._seen is not None or self._due is not None):
            try:
                await self.flush()
            except OSError as error:
                log.warning("the last changes were not written: %s", error)
        self._thread.shutdown(wait=False)

    def _is_complete(self) -> bool:
        """Whether the journal is complete: a follower gets the list of unplaced instances last."""
        journal = self._journal()
        return journal.session is not None and journal.unplaced_known

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

    async def _write_journal(self) -> None:
        journal = self._journal()
        self._due, self._seen = None, _version(journal)
        session, record = journal.session, journal.record()
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
    """The error message of the system."""
    return error.strerror or str(error)


def _version(journal: JournalReplica) -> object:
    """Differs when the record does."""
    state = journal.state
    newest = next(reversed(journal.deletions), None)
    members, lost = journal.membership.others(), tuple(journal.membership.lost.items())
    waiting = tuple(journal.unplaced)
    return (
        state.instances, state.tracing_enabled, journal.session, waiting, newest, members, lost,
        journal.tokens.version,
    )  # fmt: skip
