"""The supervisor of the daemon's long-running tasks: a task that ends is started again.

Restarts back off. A task that the daemon cannot do without and that keeps failing for a reason of
its own ends the daemon with `EXIT_TASK_FAILED`, so that the service manager starts a fresh one.
What is outside the process (a full disk, a taken port) is tried again without end: a new process
would fail in the same way. Must not know what the tasks do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

EXIT_TASK_FAILED = 70
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
SETTLED_S = 1.0
"""A task that has run so long after a restart counts as running again."""
STABLE_S = 60.0
"""A task that has run so long has used up none of its attempts."""
ATTEMPTS = 6
THREADS_S = 5.0

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Supervised:
    """One task and how it fares."""

    name: str
    work: Work
    essential: bool
    external: tuple[type[BaseException], ...]
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    started_at: float = 0.0
    failures: int = 0
    """In a row."""
    restarts: int = 0
    problem: str = ""
    """Why it is down; empty while it runs."""


Changed = Callable[[Supervised, str], None]
"""Told when a task has gone down, with the reason, and when it runs again, with ""."""


def delay_s(failures: int) -> float:
    """How long to wait after so many failures in a row. Pure."""
    return float(min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** max(0, failures - 1)))


class TaskSupervisor:
    """Every long-running task of the daemon is started here."""

    def __init__(self) -> None:
        self.tasks: dict[str, Supervised] = {}
        self.failed = ""
        """The task that the daemon ends for."""
        self._listeners: list[Changed] = []
        self._give_up: Callable[[], None] = lambda: None
        self._stopping = False

    def on_change(self, changed: Changed) -> None:
        self._listeners.append(changed)

    def on_giving_up(self, end: Callable[[], None]) -> None:
        """How to end the daemon; `failed` is set then."""
        self._give_up = end

    def start(
        self,
        name: str,
        work: Work,
        *,
        essential: bool = False,
        external: tuple[type[BaseException], ...] = (OSError,),
    ) -> None:
        """Run `work` until `stop`. `external`: failures that a new process would not end."""
        one = self.tasks[name] = Supervised(name, work, essential, external)
        self._run(one)

    def down(self) -> dict[str, str]:
        """Tasks that do not run now, and why."""
        return {one.name: one.problem for one in self.tasks.values() if one.problem}

    async def stop(self) -> None:
        """Cancel all of them and wait until they are gone."""
        self._stopping = True
        running = [one.task for one in self.tasks.values() if one.task is not None]
        for one in self.tasks.values():
            if one.timer is not None:
                one.timer.cancel()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _run(self, one: Supervised) -> None:
        loop = asyncio.get_running_loop()
        one.started_at = loop.time()
        one.task = loop.create_task(one.work(), name=one.name)
        one.task.add_done_callback(lambda task: self._ended(one, task))
        one.timer = loop.call_later(SETTLED_S, self._settled, one) if one.problem else None

    def _settled(self, one: Supervised) -> None:
        one.timer, one.problem = None, ""
        log.warning("background task %r runs again", one.name)
        self._tell(one)

    def _ended(self, one: Supervised, task: asyncio.Task[None]) -> None:
        one.task = None
        if one.timer is not None:
            one.timer.cancel()
        if self._stopping:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        loop = asyncio.get_running_loop()
        one.failures = 1 if loop.time() - one.started_at >= STABLE_S else one.failures + 1
        one.problem = _reason(error)
        self._tell(one)
        if one.essential and one.failures >= ATTEMPTS and not isinstance(error, one.external):
            log.critical("background task %r failed %d times", one.name, one.failures)
            self.failed = self.failed or one.name
            self._give_up()
            return
        pause_s = delay_s(one.failures)
        log.error(
            "background task %r ended (%s); starting it again in %g s",
            one.name,
            one.problem,
            pause_s,
            # Its first failure tells where; the following ones only repeat it.
            exc_info=error if one.failures == 1 and not task.cancelled() else None,
        )
        one.timer = loop.call_later(pause_s, self._restart, one)

    def _tell(self, one: Supervised) -> None:
        for changed in self._listeners:
            changed(one, one.problem)

    def _restart(self, one: Supervised) -> None:
        one.restarts += 1
        self._run(one)


class ThreadOwner(Protocol):
    """Something that does its work in a thread."""

    @property
    def alive(self) -> bool: ...

    def start(self) -> None:
        """Start the thread, also after it has died."""
        ...


async def keep_threads(owners: Mapping[str, ThreadOwner]) -> None:
    """Start threads again that have died, until cancelled."""
    while True:
        for name, owner in owners.items():
            if not owner.alive:
                log.error("thread %r has ended; starting it again", name)
                owner.start()
        await asyncio.sleep(THREADS_S)


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "it returned"
    if isinstance(error, asyncio.CancelledError):
        return "it was cancelled"
    return f"{type(error).__name__}: {error}"
