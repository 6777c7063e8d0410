"""Real process trees: what is listed, what it is called, and what it costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from skulkd.machine.processes import (
    CPU_INTERVAL_S,
    ProcessReader,
    ProcessSample,
    describe,
    infer_role,
    percent_of_core,
    shown_command,
)
from skulkd.wire.diagnostics import DiagnosticsProcess, ProcessRole

from .conftest import StartChild, wait_until

NOBODY: frozenset[int] = frozenset()
BUSY = "while True: pass"
SLEEP = "import time; time.sleep(600)"
# Starts two children, says their pids, and waits.
PARENT = f"""
import subprocess, sys
busy = subprocess.Popen([sys.executable, "-c", {BUSY!r}])
idle = subprocess.Popen([sys.executable, "-c", {SLEEP!r}, "--token", "hunter2secret"])
print(busy.pid, idle.pid, flush=True)
idle.wait()
"""


def _start_tree(start_child: StartChild) -> tuple[int, int, int]:
    parent = start_child(sys.executable, "-c", PARENT)
    assert parent.stdout is not None
    busy, idle = map(int, parent.stdout.readline().split())
    return parent.pid, busy, idle


def _read(
    reader: ProcessReader, runner_pids: frozenset[int] = NOBODY
) -> dict[int, DiagnosticsProcess]:
    return {process.pid: process for process in describe(reader(), runner_pids)}


def test_tree_below_the_root_is_listed_with_lineage(start_child: StartChild) -> None:
    parent, busy, idle = _start_tree(start_child)
    found = _read(ProcessReader(parent), frozenset({busy}))
    assert list(found) == sorted(found)
    assert {parent, busy, idle} <= set(found)
    assert [found[pid].role for pid in (parent, busy, idle)] == ["skulk", "runner", "python"]
    assert found[busy].parent_pid == found[idle].parent_pid == parent
    assert all(found[pid].is_child_of_skulk for pid in (parent, busy, idle))


def test_grandchildren_are_listed(start_child: StartChild) -> None:
    root = start_child("sh", "-c", "sh -c 'sleep 602 & wait' & wait")
    reader = ProcessReader(root.pid)

    def sleeper() -> list[DiagnosticsProcess]:
        return [found for found in _read(reader).values() if found.command == "sleep 602"]

    wait_until(lambda: bool(sleeper()), "the grandchild is listed")
    assert sleeper()[0].parent_pid != root.pid
    assert sleeper()[0].is_child_of_skulk


def test_numbers_agree_with_the_system(start_child: StartChild) -> None:
    parent, _, idle = _start_tree(start_child)
    process = _read(ProcessReader(parent))[idle]
    real = psutil.Process(idle)
    assert process.rss is not None
    assert process.rss.in_bytes == pytest.approx(real.memory_info().rss, rel=0.5)
    assert process.memory_percent == pytest.approx(
        100 * process.rss.in_bytes / psutil.virtual_memory().total, abs=0.01
    )
    assert process.elapsed_seconds is not None
    assert process.elapsed_seconds >= 0
    assert process.status in {psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING}


def test_secret_in_the_arguments_does_not_show(start_child: StartChild) -> None:
    parent, _, idle = _start_tree(start_child)

    def command() -> str:
        return _read(ProcessReader(parent))[idle].command

    wait_until(lambda: "--token" in command(), "the child runs its own program")
    assert command().endswith("--token ***")
    assert "hunter2secret" not in command()


def test_busy_child_shows_cpu_and_sleeping_child_a_measured_zero(start_child: StartChild) -> None:
    parent, busy, idle = _start_tree(start_child)
    reader = ProcessReader(parent)

    def told_apart() -> bool:
        found = _read(reader)
        return (found[busy].cpu_percent or 0.0) > 5.0 and found[idle].cpu_percent == 0.0

    wait_until(told_apart, "the busy child is told from the sleeping one")


def test_first_call_measures_over_an_interval_and_the_next_uses_it(
    start_child: StartChild,
) -> None:
    child = start_child(sys.executable, "-c", SLEEP)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        psutil.Process(child.pid).cpu_percent(interval=seconds)

    reader = ProcessReader(child.pid, sleep=sleep)
    assert _read(reader)[child.pid].cpu_percent is not None
    assert waits == [CPU_INTERVAL_S]
    sleep(CPU_INTERVAL_S)
    assert _read(reader)[child.pid].cpu_percent is not None
    assert waits == [CPU_INTERVAL_S, CPU_INTERVAL_S], "the second call waited again"


def test_own_process_is_the_root_by_default() -> None:
    own = _read(ProcessReader())[os.getpid()]
    assert (own.role, own.is_child_of_skulk) == ("skulk", True)


def test_root_that_has_ended_gives_no_tree(start_child: StartChild) -> None:
    child = start_child("true")
    child.wait()
    assert child.pid not in _read(ProcessReader(child.pid))


def test_zombie_is_listed_by_name(start_child: StartChild) -> None:
    script = "import subprocess, time; c = subprocess.Popen(['true']); print(c.pid, flush=True)"
    parent = start_child(sys.executable, "-c", f"{script}; time.sleep(600)")
    assert parent.stdout is not None
    zombie = int(parent.stdout.readline())
    reader = ProcessReader(parent.pid)
    wait_until(lambda: _read(reader)[zombie].status == "zombie", "the child is a zombie")
    process = _read(reader)[zombie]
    assert (process.command, process.role) == ("[true]", "other")


def _program(tmp_path: Path, name: str) -> str:
    sleep = shutil.which("sleep")
    assert sleep is not None
    return str(shutil.copy(sleep, tmp_path / name))


def test_vector_elsewhere_is_listed_and_lookalikes_are_not(
    start_child: StartChild, tmp_path: Path
) -> None:
    root = start_child(sys.executable, "-c", SLEEP)
    vector = start_child(_program(tmp_path, "vector"), "600")
    lookalikes: Sequence[subprocess.Popen[bytes]] = [
        start_child(_program(tmp_path, "pgvector"), "600"),
        start_child(sys.executable, "-c", SLEEP, "vector", "--config", "vector.yaml"),
    ]
    reader = ProcessReader(root.pid)
    wait_until(lambda: vector.pid in _read(reader), "vector is listed")
    found = _read(reader)
    assert (found[vector.pid].role, found[vector.pid].is_child_of_skulk) == ("vector", False)
    assert not {child.pid for child in lookalikes} & set(found)


def _sample(*argv: str, pid: int = 5, root: bool = False, name: str | None = None) -> ProcessSample:
    return ProcessSample(
        pid=pid,
        in_tree=True,
        is_root=root,
        parent_pid=1,
        name=name,
        argv=argv,
        command=shown_command(name, argv),
        status=None,
        cpu_percent=None,
        rss_bytes=None,
        memory_percent=None,
        elapsed_s=None,
    )


@pytest.mark.parametrize(
    ("sample", "role"),
    [
        (_sample("/usr/bin/anything", root=True), "skulk"),
        (_sample("/usr/bin/anything", pid=77), "runner"),
        (_sample("/x/python3", "-m", "skulkd.runner"), "runner"),
        (_sample("/x/python3", "-m", "skulkd", "run"), "skulk"),
        (_sample("/x/python3", "-I", "/x/bin/skulkctl", "status"), "skulk"),
        (_sample("/x/bin/skulkd", "run"), "skulk"),
        (_sample("/usr/bin/vector", "--config", "v.yaml"), "vector"),
        (_sample("/usr/bin/pgvector", "--config", "v.yaml"), "other"),
        (_sample("/home/skulk/venv/bin/python3", "-c", "from x import spawn_main"), "python"),
        (_sample("/srv/skulk/tool", "vector"), "other"),
        (_sample(name="vector"), "vector"),
        (_sample(), "other"),
    ],
)
def test_role(sample: ProcessSample, role: ProcessRole) -> None:
    assert infer_role(sample, frozenset({77})) == role


def test_what_the_system_refused_is_null() -> None:
    [process] = describe([_sample("x")], NOBODY)
    values = process.model_dump(include={"status", "cpu_percent", "memory_percent", "rss"})
    assert set(values.values()) == {None}


def test_endless_command_line_is_cut() -> None:
    command = shown_command("x", ["x", "y" * 100_000])
    assert 4000 < len(command) < 5000
    assert command.endswith("…")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((10.0, 1.0), (10.5, 1.25), 50.0),
        ((10.0, 1.0), (10.5, 1.0), 0.0),
        (None, (10.5, 1.0), None),
        ((10.0, 1.0), None, None),
        ((10.0, 1.0), (10.0, 1.0), None),
    ],
)
def test_percent_of_core(
    before: tuple[float, float] | None, now: tuple[float, float] | None, expected: float | None
) -> None:
    assert percent_of_core(before, now) == expected
