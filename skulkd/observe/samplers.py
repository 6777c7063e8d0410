"""Looking into a process that is stuck: stacks, kernel state, memory maps, last log lines.

Everything is best effort with a deadline of its own; a sampler that fails says why in its
sample and never fails the capture. Blocking: call it from a thread.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from skulkd.machine.tools import ToolError, ToolFailed, run_tool
from skulkd.wire.diagnostics import DiagnosticProcessSample

TEXT_LIMIT = 64_000
TOOL_LIMIT_S = 8.0
LOG_LINES = 200
_PROC_FILES = ("status", "wchan", "stat", "io", "limits", "cgroup", "stack")
_MAX_THREADS = 256

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom to sample, for how long, and where its output is kept."""

    pid: int
    duration_s: float
    log_file: Path
    redact: Redact


Sampler = Callable[[Subject], DiagnosticProcessSample]


def take_samples(subject: Subject, platform: str = sys.platform) -> list[DiagnosticProcessSample]:
    """All samples that this system can give, taken at the same time."""
    samplers = _DARWIN if platform == "darwin" else _LINUX
    with ThreadPoolExecutor(len(samplers)) as pool:
        return list(pool.map(lambda take: take(subject), samplers))


def longest_s(duration_s: float) -> float:
    """How long `take_samples` may take."""
    return duration_s + 2 * TOOL_LIMIT_S


def log_sample(subject: Subject) -> DiagnosticProcessSample:
    """The last lines that the process printed."""

    def read() -> str:
        return "\n".join(last_lines(subject.log_file, LOG_LINES))

    return _sample("log", (), read, subject)


def last_lines(file: Path, count: int, limit_bytes: int = 256 * 1024) -> list[str]:
    """The last lines of a file, at most so many and out of so many bytes. Raises OSError."""
    with file.open("rb") as source:
        size = source.seek(0, 2)
        source.seek(max(0, size - limit_bytes))
        lines = source.read().decode("utf-8", "replace").splitlines()
    whole = lines if size <= limit_bytes else lines[1:]
    return whole[-count:]


def _py_spy(name: str, wait: bool) -> Sampler:
    """Python and native stacks of all threads; twice, to see whether anything moves."""

    def take(subject: Subject) -> DiagnosticProcessSample:
        if wait:
            time.sleep(subject.duration_s)
        tool = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
        argv = (tool, "dump", "--native", "--nonblocking", "--pid", str(subject.pid))

        def dump() -> str:
            try:
                return run_tool(argv, TOOL_LIMIT_S)
            except ToolFailed:
                # Not every build can unwind native frames; Python's own say enough.
                return run_tool([one for one in argv if one != "--native"], TOOL_LIMIT_S)

        return _sample(name, argv, dump, subject)

    return take


def _proc(subject: Subject) -> DiagnosticProcessSample:
    """What the kernel says: state, where it sleeps, its threads."""

    def read() -> str:
        base = Path("/proc") / str(subject.pid)
        parts = [f"== {name}\n{_read(base / name)}" for name in _PROC_FILES]
        for task in sorted((base / "task").iterdir())[:_MAX_THREADS]:
            state = _read(task / "stat").rpartition(")")[2].split()[:1]
            where = _read(task / "wchan").strip() or "-"
            name = _read(task / "comm").strip()
            parts.append(f"== thread {task.name} {name} state={''.join(state)} wchan={where}")
        return "\n".join(parts)

    return _sample("proc", (), read, subject)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        return f"({error.strerror})\n"


def _tool(name: str, *arguments: str, extra_s: float = 0.0) -> Sampler:
    def take(subject: Subject) -> DiagnosticProcessSample:
        seconds = str(max(1, round(subject.duration_s)))
        argv = tuple(one.format(pid=subject.pid, seconds=seconds) for one in (name, *arguments))
        limit_s = subject.duration_s + extra_s if extra_s else TOOL_LIMIT_S
        return _sample(name, argv, lambda: run_tool(argv, limit_s), subject)

    return take


def _sample(
    name: str, argv: Sequence[str], take: Callable[[], str], subject: Subject
) -> DiagnosticProcessSample:
    began = time.monotonic()
    stdout, error, code = None, None, None
    try:
        stdout = _cut(subject.redact(take()))
        code = 0
    except ToolFailed as failure:
        error, code = subject.redact(str(failure)), failure.code
    except (ToolError, OSError) as failure:
        error = subject.redact(f"{type(failure).__name__}: {failure}")
    return DiagnosticProcessSample(
        name=name,
        command=list(argv),
        ok=error is None,
        exit_code=code if argv else None,
        duration_seconds=round(time.monotonic() - began, 3),
        stdout=stdout,
        error=error,
    )


def _cut(text: str) -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    return f"{text[:TEXT_LIMIT]}\n… cut, {len(text) - TEXT_LIMIT} characters more\n"


_LINUX: tuple[Sampler, ...] = (
    _py_spy("py-spy", wait=False),
    _py_spy("py-spy-later", wait=True),
    _proc,
    log_sample,
)
_DARWIN: tuple[Sampler, ...] = (
    _tool("sample", "{pid}", "{seconds}", extra_s=5.0),
    _tool("vmmap", "-summary", "{pid}"),
    _tool("footprint", "-p", "{pid}"),
    log_sample,
)
