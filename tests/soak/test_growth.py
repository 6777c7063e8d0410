"""What counts as growth: a thread or file that stays, of whatever kind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.daemon_process import wait_until
from tests.soak.growth import EXECUTOR_THREADS, grown, inventory

LEAKING = """
import os, socket, sys, threading
kept = []
for order in sys.stdin:
    if order == "thread\\n":
        kept.append(threading.Thread(target=threading.Event().wait, daemon=True))
        kept[-1].start()
    if order == "pipe\\n":
        kept.append(os.pipe())
    if order == "socket\\n":
        kept.append(socket.socket())
    print(order, end="", flush=True)
"""


class Leaking:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process

    def leak(self, what: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == f"{what}\n"


@pytest.fixture
def process() -> Iterator[Leaking]:
    with subprocess.Popen(
        [sys.executable, "-c", LEAKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        leaking = Leaking(child)
        leaking.leak("nothing")
        yield leaking
        child.kill()


def test_nothing_has_grown_where_nothing_was_left(process: Leaking) -> None:
    before = inventory(process.pid)
    process.leak("nothing")
    assert grown(before, inventory(process.pid)) == {}


@pytest.mark.parametrize("what", ["pipe", "socket"])
def test_one_file_that_stays_is_growth(process: Leaking, what: str) -> None:
    before = inventory(process.pid)
    process.leak(what)
    assert grown(before, inventory(process.pid))


def test_threads_grow_when_they_are_more_than_the_executor_may_have(process: Leaking) -> None:
    before = inventory(process.pid)
    for _ in range(EXECUTOR_THREADS):
        process.leak("thread")
    assert grown(before, inventory(process.pid)) == {}
    process.leak("thread")
    wait_until(lambda: grown(before, inventory(process.pid)), "the growth to show", 30)
