"""What the screens cost: a key until the repaint, an idle application, the start, a table."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.figures import Figure, alternate
from scripts.live_daemon import live_daemon
from skulkctl.ui.app import Setup, SkulkApp
from tests.timeline.app_rig import StillFeed, settle
from tests.timeline.builders import NOW, rank, step, timeline
from tests.timeline.clusters import a_cluster

NODES, RANKS = 32, 8
ENTRIES = 128
KEYS = ("j", "j", "left", "left", "plus", "minus", "shift+left", "f", "n", "1", "2", "3")
ROUNDS = 8
IDLE_S = 20.0
SETTLE_S = 6.0
STARTS = 7
STATUS_ROUNDS = 15
SIZE = (120, 40)


def run() -> list[Figure]:
    figures = [_key_figure(asyncio.run(key_times()))]
    with live_daemon("bench") as daemon:
        env = {name: v for name, v in daemon.env.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "120"}
        figures += [*_idle(env), _start(env), _status(env)]
    return figures


# A key until it is painted


def a_timeline() -> dict[str, Any]:
    """An instance of eight ranks for each of 32 nodes, every recorder full, all decoding."""
    ranks = [
        rank(
            number,
            [
                step(0.4 * ago, "decode_stream", "decode_token_progress", completion_tokens=-ago)
                for ago in range(ENTRIES, 0, -1)
            ],
            node=f"node-{(node + number) % NODES}",
            instance=f"inst{node:04}",
            task=f"task-{node}",
        )
        for node in range(NODES)
        for number in range(RANKS)
    ]
    return timeline(*ranks, size=RANKS)


@dataclass(frozen=True)
class KeyTimes:
    """Seconds from each key to the end of the last paint that it caused, and on the processor."""

    passed: list[float]
    busy: list[float]


class _PaintedApp(SkulkApp):
    """Remembers when it painted last."""

    CSS_PATH = Path(inspect.getfile(SkulkApp)).parent / "app.tcss"  # relative to a class's own file
    painted_s = 0.0

    def _display(self, screen: Any, renderable: Any) -> None:
        super()._display(screen, renderable)
        self.painted_s = time.perf_counter()


async def key_times() -> KeyTimes:
    """The clock of the application stands still: its seconds are no answer to a key."""
    feed = StillFeed(a_cluster(NODES), a_timeline())
    app = _PaintedApp(Setup(feed, mode="timeline", every_s=3600.0, now=lambda: NOW))
    times = KeyTimes([], [])
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        for number in range(ROUNDS):
            for key in KEYS:
                started = app.painted_s = time.perf_counter()
                before = time.process_time()
                # Pilot's own press waits 40 ms by the clock.
                app.simulate_key(key)
                await settle(app, pilot)
                # The first round builds the pages; a key at an end paints nothing.
                if number and app.painted_s > started:
                    times.passed.append(app.painted_s - started)
                    times.busy.append(time.process_time() - before)
    return times


def _key_figure(times: KeyTimes) -> Figure:
    p95 = statistics.quantiles(times.passed, n=20)[18]
    busy = times.busy
    detail = f"{NODES} nodes × {RANKS} ranks, {len(times.passed)} keys, median "
    detail += f"{statistics.median(times.passed) * 1000:.0f} ms; processor time median "
    detail += f"{statistics.median(busy) * 1000:.0f} ms, p95 "
    detail += f"{statistics.quantiles(busy, n=20)[18] * 1000:.0f} ms"
    return Figure("Key to repaint, p95", p95 * 1000, 50, "less", "ms", detail)


# The application in a terminal


@contextmanager
def terminal(*command: str, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A program on a terminal of its own; it is ended with the block."""
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    process = subprocess.Popen(
        command, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_for(terminal_fd: int, seconds: float, until: bytes = b"") -> bytes:
    """What the program writes in this time, or until this text."""
    written = b""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        ready, _, _ = select.select([terminal_fd], [], [], left)
        if not ready:
            break
        try:
            written += os.read(terminal_fd, 65536)
        except OSError:  # the program has ended
            break
        if until and until in written:
            break
    return written


def _skulkctl(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "skulkctl", *arguments]


def _idle(env: dict[str, str]) -> list[Figure]:
    with terminal(*_skulkctl("ui"), env=env) as (process, screen):
        read_for(screen, 60.0, b"bench")
        read_for(screen, SETTLE_S)
        watched = psutil.Process(process.pid)
        before = sum(watched.cpu_times()[:2])
        written = len(read_for(screen, IDLE_S))
        busy = (sum(watched.cpu_times()[:2]) - before) / IDLE_S
    detail = f"over {IDLE_S:.0f} s on the first page, one node"
    return [
        Figure("`ui` idle, share of one core", busy * 100, 3, "less", "%", detail),
        Figure("`ui` idle, terminal output", written / IDLE_S / 1000, 1, "less", "KB/s", detail),
    ]


def _start(env: dict[str, str]) -> Figure:
    taken = []
    for _ in range(STARTS):
        started = time.perf_counter()
        with terminal(*_skulkctl("ui"), env=env) as (_, screen):
            read_for(screen, 60.0, b"Cluster")
            taken.append(time.perf_counter() - started)
    detail = f"from the start of the process, median of {STARTS}"
    return Figure("`ui`, first paint", statistics.median(taken), 1.0, "less", "s", detail)


def _status(env: dict[str, str]) -> Figure:
    def on_terminal() -> float:
        started = time.perf_counter()
        with terminal(*_skulkctl("status"), env=env) as (process, screen):
            while process.poll() is None:
                read_for(screen, 0.01)
            return time.perf_counter() - started

    def piped() -> float:
        started = time.perf_counter()
        subprocess.run(_skulkctl("status"), env=env, check=True, stdout=subprocess.PIPE)
        return time.perf_counter() - started

    medians = alternate(STATUS_ROUNDS, {"terminal": on_terminal, "pipe": piped})
    detail = f"{medians['terminal'] * 1000:.0f} ms against {medians['pipe'] * 1000:.0f} ms, "
    detail += f"median of {STATUS_ROUNDS}"
    ratio = medians["terminal"] / medians["pipe"]
    return Figure("`skulkctl status` on a terminal / in a pipe", ratio, 1.3, "less", detail=detail)
