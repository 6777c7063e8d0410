"""The supervisor alone: when it starts a task again, waits, tells, and gives up."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from skulkd import supervision
from skulkd.supervision import TaskSupervisor, delay_s, keep_threads


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_DELAY_S", "LONGEST_DELAY_S", "SETTLED_S", "THREADS_S"):
        monkeypatch.setattr(supervision, name, 0.01)


class Observed(TaskSupervisor):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str]] = []
        self.ended = asyncio.Event()
        self.healed = asyncio.Event()
        self.on_change(self._note)
        self.on_giving_up(self.ended.set)

    def _note(self, one: supervision.Supervised, problem: str) -> None:
        self.told.append((one.name, problem))
        if not problem:
            self.healed.set()


class Flaky:
    """Fails as often as it has errors, then runs."""

    def __init__(self, *errors: BaseException | None) -> None:
        self.errors: Iterator[BaseException | None] = iter(errors)
        self.runs = 0

    async def __call__(self) -> None:
        self.runs += 1
        for error in self.errors:
            if error is None:
                return
            raise error
        await asyncio.Event().wait()


def test_delays_double_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_DELAY_S", 0.5)
    monkeypatch.setattr(supervision, "LONGEST_DELAY_S", 30.0)
    assert [delay_s(n) for n in range(1, 10)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("no more data"), "RuntimeError: no more data"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (None, "it returned"),
        (asyncio.CancelledError(), "it was cancelled"),
    ],
)
async def test_a_task_that_ends_in_any_way_is_started_again(
    caplog: pytest.LogCaptureFixture, error: BaseException | None, told: str
) -> None:
    supervisor = Observed()
    work = Flaky(error)
    with caplog.at_level(logging.WARNING):
        supervisor.start("store", work)
        await asyncio.wait_for(supervisor.healed.wait(), 20)
    assert work.runs == 2
    (down, problem), up = supervisor.told
    assert (down, up) == ("store", ("store", ""))
    assert told in problem
    assert told in caplog.text
    assert supervisor.down() == {}
    assert supervisor.tasks["store"].restarts == 1
    await supervisor.stop()


async def test_while_it_is_down_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_DELAY_S", 3600.0)
    monkeypatch.setattr(supervision, "LONGEST_DELAY_S", 3600.0)
    supervisor = Observed()
    supervisor.start("store", Flaky(RuntimeError("x")))
    while not supervisor.told:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert supervisor.down() == {"store": "RuntimeError: x"}
    await supervisor.stop()
    assert len(asyncio.all_tasks()) == 1


async def test_an_essential_task_that_keeps_failing_ends_the_daemon() -> None:
    supervisor = Observed()
    work = Flaky(*(RuntimeError("bug") for _ in range(99)))
    supervisor.start("cluster", work, essential=True)
    await asyncio.wait_for(supervisor.ended.wait(), 20)
    assert supervisor.failed == "cluster"
    assert work.runs == supervision.ATTEMPTS
    await supervisor.stop()


@pytest.mark.parametrize(
    ("essential", "error"),
    [(True, OSError("full")), (True, PermissionError("no")), (False, RuntimeError("bug"))],
)
async def test_what_a_new_process_would_not_mend_is_tried_again_without_end(
    essential: bool, error: Exception
) -> None:
    supervisor = Observed()
    work = Flaky(*(error for _ in range(3 * supervision.ATTEMPTS)))
    supervisor.start("cluster", work, essential=essential)
    await asyncio.wait_for(supervisor.healed.wait(), 20)
    assert work.runs == 3 * supervision.ATTEMPTS + 1
    assert not supervisor.failed
    await supervisor.stop()


async def test_failures_that_are_far_apart_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "STABLE_S", 0.0)
    supervisor = Observed()
    work = Flaky(*(RuntimeError("now and then") for _ in range(3 * supervision.ATTEMPTS)))
    supervisor.start("cluster", work, essential=True)
    await asyncio.wait_for(supervisor.healed.wait(), 20)
    assert not supervisor.failed
    await supervisor.stop()


async def test_tasks_that_are_stopped_are_not_missed() -> None:
    supervisor = Observed()
    supervisor.start("one", Flaky())
    await supervisor.stop()
    assert supervisor.told == []
    assert len(asyncio.all_tasks()) == 1


async def test_a_thread_that_has_died_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    class Owner:
        def __init__(self) -> None:
            self.starts = 0
            self.enough = threading.Event()
            self._thread = threading.Thread(target=lambda: None)

        @property
        def alive(self) -> bool:
            return self._thread.is_alive()

        def start(self) -> None:
            self.starts += 1
            work = self.enough.wait if self.starts == 3 else (lambda: None)
            self._thread = threading.Thread(target=work, daemon=True)
            self._thread.start()

    owner = Owner()
    keeping = asyncio.create_task(keep_threads({"event-log": owner}))
    async with asyncio.timeout(20):
        while owner.starts < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "thread 'event-log' has ended" in caplog.text
    keeping.cancel()
    owner.enough.set()
