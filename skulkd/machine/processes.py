"""Processes an operator wants to see: the daemon, everything below it, and log shippers.

Reads them from the operating system; what they are to us is judged from the samples (pure).
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

import psutil

from skulkd.machine.redact import redact_command
from skulkd.wire.base import Memory
from skulkd.wire.diagnostics import DiagnosticsProcess, ProcessRole

RUNNER_MODULE = "skulkd.runner"
PROGRAMS = {"skulkd", "skulkctl"}
VECTOR = "vector"
MAX_COMMAND_CHARS = 4096

# A CPU clock ticks 100 times a second: shorter intervals measure little.
CPU_INTERVAL_S = 0.2
# "Recent" CPU use must not be an average over the hour since somebody last asked.
OLDEST_CPU_READING_S = 15.0

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """What the system told about one process; None where it would not say."""

    pid: int
    in_tree: bool
    is_root: bool
    parent_pid: int | None
    name: str | None
    argv: tuple[str, ...]
    command: str
    status: str | None
    cpu_percent: float | None
    rss_bytes: int | None
    memory_percent: float | None
    elapsed_s: float | None


def describe(
    samples: Iterable[ProcessSample], runner_pids: frozenset[int]
) -> tuple[DiagnosticsProcess, ...]:
    """The wire's view of the samples, by pid, with their roles."""
    return tuple(
        DiagnosticsProcess(
            pid=sample.pid,
            parent_pid=sample.parent_pid,
            role=infer_role(sample, runner_pids),
            command=sample.command,
            status=sample.status,
            cpu_percent=sample.cpu_percent,
            memory_percent=sample.memory_percent,
            rss=None if sample.rss_bytes is None else Memory.of(sample.rss_bytes),
            elapsed_seconds=sample.elapsed_s,
            is_child_of_skulk=sample.in_tree,
        )
        for sample in sorted(samples, key=lambda sample: sample.pid)
    )


def shown_command(name: str | None, argv: Sequence[str]) -> str:
    """The command line without secrets, cut when endless; the name for zombies without one."""
    if not argv:
        return f"[{name or 'unknown'}]"
    command = redact_command(argv)
    return command if len(command) <= MAX_COMMAND_CHARS else command[:MAX_COMMAND_CHARS] + "…"


def infer_role(sample: ProcessSample, runner_pids: frozenset[int]) -> ProcessRole:
    """First match wins; a path that happens to contain one of our names decides nothing."""
    executable = _basename(sample.argv[0]) if sample.argv else sample.name or ""
    if sample.is_root:
        return "skulk"
    if sample.pid in runner_pids or RUNNER_MODULE in sample.argv:
        return "runner"
    if executable == VECTOR:
        return "vector"
    # `skulkd`, `python -m skulkd`, `python -I /somewhere/bin/skulkctl`.
    if PROGRAMS & {_basename(argument) for argument in sample.argv[:4]}:
        return "skulk"
    return "python" if executable.lower().startswith("python") else "other"


def percent_of_core(
    before: tuple[float, float] | None, now: tuple[float, float] | None
) -> float | None:
    """CPU percent between two readings (when, CPU seconds) of a process; None if not measured."""
    if before is None or now is None or now[0] <= before[0]:
        return None
    return round(max(0.0, 100 * (now[1] - before[1]) / (now[0] - before[0])), 1)


class ProcessReader:
    """Samples the processes; remembers their CPU clocks so that the next call has a difference."""

    def __init__(
        self, root_pid: int | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._root_pid = os.getpid() if root_pid is None else root_pid
        self._sleep = sleep
        self._clocks: dict[psutil.Process, tuple[float, float]] = {}

    def __call__(self) -> tuple[ProcessSample, ...]:
        """All relevant processes now; takes CPU_INTERVAL_S when one was not seen lately."""
        tree = _tree(self._root_pid)
        others = [process for process in _vectors() if process not in tree]
        earlier = self._recent_clocks()
        first = {process: _cpu_clock(process) for process in (*tree, *others)}
        unknown = {process for process in first if process not in earlier}
        if unknown:
            self._sleep(CPU_INTERVAL_S)
        total = psutil.virtual_memory().total
        samples = []
        clocks: dict[psutil.Process, tuple[float, float]] = {}
        for process, start in first.items():
            now = _cpu_clock(process) if process in unknown else start
            before = start if process in unknown else earlier[process]
            if now is not None:
                clocks[process] = now
            sample = self._sample(process, process in tree, percent_of_core(before, now), total)
            if sample is not None:
                samples.append(sample)
        self._clocks = clocks
        return tuple(samples)

    def _recent_clocks(self) -> dict[psutil.Process, tuple[float, float]]:
        now = time.monotonic()
        return {
            process: clock
            for process, clock in self._clocks.items()
            if CPU_INTERVAL_S <= now - clock[0] <= OLDEST_CPU_READING_S
        }

    def _sample(
        self, process: psutil.Process, in_tree: bool, cpu_percent: float | None, total: int
    ) -> ProcessSample | None:
        """None when the process is gone."""
        try:
            with process.oneshot():
                memory = _ask(process.memory_info)
                rss = None if memory is None else memory.rss
                created = _ask(process.create_time)
                name, argv = _ask(process.name), tuple(_ask(process.cmdline) or ())
                return ProcessSample(
                    pid=process.pid,
                    in_tree=in_tree,
                    is_root=process.pid == self._root_pid,
                    parent_pid=_ask(process.ppid),
                    name=name,
                    argv=argv,
                    command=shown_command(name, argv),
                    status=_ask(process.status),
                    cpu_percent=cpu_percent,
                    rss_bytes=rss,
                    memory_percent=None if rss is None else round(100 * rss / total, 2),
                    elapsed_s=None if created is None else max(0.0, time.time() - created),
                )
        except psutil.NoSuchProcess:
            return None


def _tree(root_pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(root_pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _vectors() -> list[psutil.Process]:
    """Processes whose executable is called `vector`, wherever they run."""
    found = []
    for process in psutil.process_iter():
        # The short name is cheap to read; the command line confirms it.
        try:
            if process.name() == VECTOR and _basename((process.cmdline() or [""])[0]) == VECTOR:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def _ask(question: Callable[[], _T]) -> _T | None:
    """One attribute; None when the system refuses it or the process is only a zombie."""
    try:
        return question()
    except (psutil.AccessDenied, psutil.ZombieProcess):
        return None


def _cpu_clock(process: psutil.Process) -> tuple[float, float] | None:
    """When we asked and how many CPU seconds the process had used by then."""
    try:
        times = _ask(process.cpu_times)
    except psutil.NoSuchProcess:
        return None
    return None if times is None else (time.monotonic(), times.user + times.system)


def _basename(path: str) -> str:
    return PurePosixPath(path).name
