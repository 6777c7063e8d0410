"""Background tasks that have an owner: ended with it, and missed when they die."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from skulkd.api.lifecycle import Lifecycle

log = logging.getLogger(__name__)


class BackgroundTasks:
    """Tasks that should run as long as the daemon; the death of one costs its readiness."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel all of them and wait until they are gone."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        reason = "it returned" if error is None else f"{type(error).__name__}: {error}"
        log.error("background task %r ended unexpectedly", task.get_name(), exc_info=error)
        self._lifecycle.mark_failed(task.get_name(), f"the background task has died ({reason})")
