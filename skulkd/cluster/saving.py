"""When what must outlive the process is written: soon after it changed, beside the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from skulkd.cluster.disk import RecordFile
from skulkd.cluster.ledger import Ledger
from skulkd.cluster.messages import Record

SAVE_DELAY_S = 0.2
"""Changes that come together are written together."""
RETRY_S = 5.0

log = logging.getLogger(__name__)


class Saving:
    """Looks at the ledger with every tick; writes in a thread, one at a time."""

    def __init__(self, file: RecordFile, ledger: Callable[[], Ledger]) -> None:
        self._file = file
        self._ledger = ledger
        self._seen: object = None
        self._due: float | None = None
        self._writing: asyncio.Task[bool] | None = None

    def look(self, now: float) -> None:
        ledger = self._ledger()
        state = ledger.state
        newest = next(reversed(ledger.deletions), None)
        seen = (
            state.instances,
            state.tracing_enabled,
            ledger.session,
            tuple(ledger.waiting),
            newest,
            ledger.membership.others(),
            tuple(ledger.membership.lost.items()),
        )
        if self._seen != seen and self._due is None:
            self._seen, self._due = seen, now + SAVE_DELAY_S
        if self._due is not None and now >= self._due and self._writing is None:
            self._due = None
            # The record is made here: the ledger belongs to the event loop.
            writing = asyncio.to_thread(self._write, ledger.record())
            self._writing = asyncio.create_task(writing)
            self._writing.add_done_callback(lambda task: self._written(task, now))

    async def finish(self) -> None:
        """Write what is not written yet."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        if self._seen is not None:
            await asyncio.to_thread(self._write, self._ledger().record())

    def _written(self, task: asyncio.Task[bool], began: float) -> None:
        self._writing = None
        if self._due is None and (task.cancelled() or not task.result()):
            self._due = began + RETRY_S

    def _write(self, record: Record) -> bool:
        try:
            self._file.save(record)
        except OSError as error:
            log.warning("placements cannot be written to %s: %s", self._file.path, error.strerror)
            return False
        return True
