"""Models that cannot be read, work that hangs, parents that die: named, bounded, told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from skulkd.runner.exits import ExitCode
from skulkd.runner.protocol import Phase, Status, TaskStatus
from skulkd.wire.ids import TaskId
from skulkd.wire.runners import RunnerFailed
from skulkd.wire.tasks import StartWarmup
from tests.runner.runner_process import DEADLINE_S, INSTANCE, Runner, runner_environ


def cut_weights(model: Path) -> None:
    os.truncate(model / "model.safetensors", 10_000)


def edit_config(model: Path, **changes: object) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changes))


BREAKAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "cut weights": (cut_weights, ["model.safetensors", "cut off"]),
    "no weights": (lambda m: (m / "model.safetensors").unlink(), ["safetensors"]),
    "config is no JSON": (lambda m: (m / "config.json").write_text("{"), ["config.json", "JSON"]),
    "unknown type": (lambda m: edit_config(m, model_type="nothing"), ["config.json", "nothing"]),
    "wrong size": (lambda m: edit_config(m, hidden_size=32), ["config.json", "shape"]),
    "too many layers": (lambda m: edit_config(m, num_hidden_layers=9), ["config.json", "Missing"]),
    "no tokenizer": (lambda m: (m / "tokenizer.json").unlink(), ["tokenizer"]),
    "broken tokenizer": (lambda m: (m / "tokenizer.json").write_text("{}"), ["tokenizer"]),
}


@pytest.mark.parametrize("kind", BREAKAGES)
def test_a_broken_model_is_named_with_its_file(
    fork: Callable[[], Runner], broken: Path, kind: str
) -> None:
    breakage, words = BREAKAGES[kind]
    breakage(broken)
    runner = fork()
    runner.configure(broken)
    runner.load()
    runner.drain()
    assert runner.wait_exit() == ExitCode.BAD_MODEL
    (failed,) = [m.status for m in runner.heard if isinstance(m, Status)][-1:]
    assert isinstance(failed, RunnerFailed)
    for word in words:
        assert word in (failed.error_message or "")
    crumbs = [p for p in runner.entries() if p.sequence]
    assert [(p.entry.phase, p.entry.event) for p in crumbs] == [("error", "runner_crashed")]


def test_a_shard_of_a_group_is_not_served_alone(fork: Callable[[], Runner], tiny: Path) -> None:
    runner = fork()
    runner.configure(tiny, shard={"world_size": 2})
    runner.load()
    refused = runner.answer(TaskId("load")).status
    assert refused.status == "Failed"
    assert "RunnerIdle" in (refused.error_message or "")


def test_an_unexpected_error_is_reported_and_told_apart(
    fork: Callable[[], Runner], tiny: Path
) -> None:
    runner = fork()
    runner.configure(tiny, shard={"immediate_exception": True})
    runner.load()
    failed = runner.until(Status, lambda m: isinstance(m.status, RunnerFailed)).status
    assert isinstance(failed, RunnerFailed)
    assert "immediateException" in (failed.error_message or "")
    runner.drain()
    assert runner.wait_exit() == ExitCode.CRASHED
    assert "Traceback" in runner.log_text()


@pytest.mark.parametrize("acknowledge", [True, False], ids=["heard", "unheard"])
def test_a_warm_up_that_hangs_ends_with_a_diagnosis(
    fork: Callable[[], Runner], tiny: Path, acknowledge: bool
) -> None:
    runner = fork()
    runner.acknowledge = acknowledge
    runner.configure(tiny, shard={"should_timeout": 600.0}, warmup_deadline_s=0.3)
    runner.load()
    runner.run(StartWarmup(task_id=TaskId("warmup"), instance_id=INSTANCE))
    runner.drain()
    assert runner.wait_exit() == ExitCode.WARMUP_WEDGE
    log = runner.log_text()
    assert "CRITICAL" in log
    assert "reboot" in log
    (crumb,) = [p for p in runner.entries() if p.sequence]
    assert (crumb.entry.phase, crumb.entry.event) == ("warmup", "deadline")
    assert crumb.entry.attrs["exit_code"] == ExitCode.WARMUP_WEDGE
    assert isinstance(runner_status(runner), RunnerFailed)


def runner_status(runner: Runner) -> object:
    return [m.status for m in runner.heard if isinstance(m, Status)][-1]


def test_a_step_that_does_not_end_is_a_wedge(fork: Callable[[], Runner], tiny: Path) -> None:
    runner = fork()
    # One step of a prompt this long takes far longer than the limit, inside MLX.
    runner.configure(tiny, prefill_step=4000, eval_deadline_s=0.05)
    runner.become_ready()
    task = runner.ask("w" * 3900)
    runner.drain()
    assert runner.wait_exit() == ExitCode.EVAL_WEDGE
    (crumb,) = [p for p in runner.entries() if p.sequence]
    assert (crumb.entry.phase, crumb.entry.event) == ("prefill_stream", "pipeline_eval_timeout")
    assert crumb.entry.task_id == task
    reports = [m.status for m in runner.heard if isinstance(m, TaskStatus) and m.task_id == task]
    assert reports == ["Running"]


def test_a_supervisor_that_closes_the_pipe_ends_the_runner(
    fork: Callable[[], Runner], tiny: Path
) -> None:
    runner = fork()
    runner.configure(tiny)
    runner.become_ready()
    os.close(runner.write_fd)
    runner.write_fd = os.dup(runner.read_fd)
    assert runner.wait_exit() == ExitCode.SUPERVISOR_GONE


_PARENT = """
import os, subprocess, sys, time
a, b, c, d = map(int, sys.argv[1:])
child = subprocess.Popen([sys.executable, "-m", "skulkd.runner", "--in-fd", str(a),
                          "--out-fd", str(b)], pass_fds=[a, b, c, d])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_parent_killed_outright_takes_the_runner_along(tiny: Path, tmp_path: Path) -> None:
    """The pipes stay open here, so only the parent's death can end it."""
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    fds = [their_in, their_out, our_in, our_out]
    with (tmp_path / "log").open("wb") as log:
        parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT, *map(str, fds)],
            pass_fds=fds,
            stdout=subprocess.PIPE,
            stderr=log,
            env=runner_environ(),
        )
    assert parent.stdout is not None
    runner = Runner(int(parent.stdout.readline()), tmp_path / "log", our_out, our_in, lambda: 0)
    try:
        runner.configure(tiny)
        runner.until(Phase)
    finally:
        parent.kill()
        parent.communicate()
        for fd in fds:
            os.close(fd)
    try:
        wait_until_gone(runner.pid)
    finally:
        if is_running(runner.pid):
            os.kill(runner.pid, signal.SIGKILL)


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while is_running(pid):
        assert time.monotonic() < deadline, "the runner outlived its parent"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Alive and no zombie: whoever adopted it may be slow to notice."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_runner_tells_the_signal(fork: Callable[[], Runner], tiny: Path) -> None:
    runner = fork()
    runner.configure(tiny)
    runner.until(Phase)
    os.kill(runner.pid, signal.SIGKILL)
    assert runner.wait_exit() == -signal.SIGKILL
