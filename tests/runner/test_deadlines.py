"""Overruns are seen from outside the work, whoever holds the interpreter lock."""

from __future__ import annotations

import subprocess
import sys

import pytest

from skulkd.runner.exits import MEANINGS, ExitCode
from skulkd.runner.watchdog import Deadline, Watchdog
from tests.runner.runner_process import DEADLINE_S, runner_environ

_HOLDS_THE_LOCK = """
import ctypes
from skulkd.runner.watchdog import Watchdog
from skulkd.runner.exits import ExitCode
dog = Watchdog(lambda guard: None, frozen_grace_s=0.2)
dog.start()
with dog.limit("joining the group", 0.1, ExitCode.CONNECT_DEADLINE, "check the network"):
    ctypes.PyDLL(None).sleep(300)
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A watchdog with a clock of its own, whose end ends nothing."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.crumbs: list[Deadline] = []
        self.codes: list[int] = []
        self.dog = Watchdog(self.crumbs.append, end=self.codes.append, clock=self.clock)

    def at(self, now: float) -> list[int]:
        self.clock.now = now
        self.dog.check()
        return self.codes


def test_an_overrun_leaves_a_breadcrumb_and_ends_with_its_code() -> None:
    watched = Watched()
    with watched.dog.limit("warm-up", 300, ExitCode.WARMUP_WEDGE, "reboot"):
        assert watched.at(299) == []
        assert watched.at(301) == [ExitCode.WARMUP_WEDGE]
    assert [guard.what for guard in watched.crumbs] == ["warm-up"]


def test_an_inner_limit_counts_beside_the_outer_one() -> None:
    watched = Watched()
    with (
        watched.dog.limit("warm-up", 300, ExitCode.WARMUP_WEDGE, "reboot"),
        watched.dog.limit("a step", 60, ExitCode.EVAL_WEDGE, "reboot"),
    ):
        assert watched.at(61) == [ExitCode.EVAL_WEDGE]


def test_progress_moves_the_deadline() -> None:
    watched = Watched()
    with watched.dog.limit("a step", 60, ExitCode.EVAL_WEDGE, "reboot") as progress:
        assert watched.at(59) == []
        progress()
        assert watched.at(118) == []
        assert watched.at(120) == [ExitCode.EVAL_WEDGE]


def test_work_that_ended_is_not_watched() -> None:
    watched = Watched()
    with watched.dog.limit("a step", 60, ExitCode.EVAL_WEDGE, "reboot"):
        pass
    assert watched.at(1000) == []


def test_the_process_ends_even_when_the_breadcrumb_fails() -> None:
    def fail(_: Deadline) -> None:
        raise OSError("the pipe is gone")

    watched = Watched()
    dog = Watchdog(fail, end=watched.codes.append, clock=watched.clock)
    with dog.limit("a step", 60, ExitCode.EVAL_WEDGE, "reboot"):
        watched.clock.now = 61
        with pytest.raises(OSError, match="gone"):
            dog.check()
    assert watched.codes == [ExitCode.EVAL_WEDGE]


def test_what_holds_the_interpreter_lock_is_ended_with_a_traceback() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _HOLDS_THE_LOCK],
        env=runner_environ(),
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == ExitCode.FROZEN
    assert b"Timeout" in ended.stderr


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ExitCode)
    assert ExitCode(86) is ExitCode.WARMUP_WEDGE
    wedges = [code for code, meaning in MEANINGS.items() if "gpu-wedge" in meaning.text]
    assert not any(MEANINGS[code].restart_helps for code in wedges)
