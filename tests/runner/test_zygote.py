"""Runners forked from a prepared parent, through the daemon's own client."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skulkd.runner.exits import ExitCode
from skulkd.runner.zygote_client import Zygote, ZygoteError
from tests.runner.runner_process import DEADLINE_S, Runner, runner_environ
from tests.runner.test_faults import wait_until_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forking is for Linux")


@pytest.fixture
async def zygote() -> AsyncIterator[Zygote]:
    started = await Zygote.start(runner_environ())
    yield started
    await started.close()


async def forked(zygote: Zygote, log: Path) -> Runner:
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    log_fd = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    pid = await zygote.fork(their_in, their_out, log_fd, {"SKULK_TEST": "1"})
    for fd in (their_in, their_out, log_fd):
        os.close(fd)
    return Runner(pid, log, our_out, our_in, lambda: 0)


async def test_siblings_answer_alike_and_end_each_in_its_own_way(
    zygote: Zygote, tiny: Path, tmp_path: Path
) -> None:
    runners = [await forked(zygote, tmp_path / f"{number}.log") for number in range(3)]
    for runner in runners:
        runner.configure(tiny)
        runner.become_ready()
    tasks = [runner.ask("siblings", max_output_tokens=20) for runner in runners]
    answers = [runner.answer(task).text() for runner, task in zip(runners, tasks, strict=True)]
    assert answers[0]
    assert len(set(answers)) == 1
    drawn = {
        runner.chat("dice", temperature=1.0, max_output_tokens=30).text() for runner in runners
    }
    assert len(drawn) == 3
    stopped, killed, left = runners
    await asyncio.to_thread(stopped.stop)
    os.kill(killed.pid, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_S):
        assert await zygote.wait(stopped.pid) == ExitCode.CLEAN
        assert await zygote.wait(killed.pid) == -signal.SIGKILL
        await zygote.close()
        await asyncio.to_thread(wait_until_gone, left.pid)
    with pytest.raises(ZygoteError):
        await zygote.wait(left.pid)
    with pytest.raises(ZygoteError):
        await zygote.fork(0, 1, 2, {})
    for runner in runners:
        runner.close()
