"""Threads and open files of a daemon by kind, and what of them grew between two calm moments."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from tests.cluster_live.agreement import SETTLE_S
from tests.cluster_live.cluster import LiveCluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

EXECUTOR_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""As many asyncio starts in the end for blocking calls, one at a time and only when needed."""
CALM_S = 5.0
LOG_EVERY_S = 60.0
_PROC = Path("/proc")
_NUMBER = re.compile(r"[0-9a-f]*\d[0-9a-f]*")

Inventory = Mapping[str, int]

log = logging.getLogger(__name__)


def inventory(pid: int) -> Counter[str]:
    """What a process has now: its threads by name, its open files by where they lead."""
    if not _PROC.exists():
        process = psutil.Process(pid)
        return Counter({"own thread": process.num_threads(), "file": process.num_fds()})
    own = _read(_PROC / str(pid) / "comm")
    threads = (_read(task / "comm") for task in (_PROC / str(pid) / "task").iterdir())
    files = (_target(file) for file in (_PROC / str(pid) / "fd").iterdir())
    kinds = ["own thread" if name == own else f"thread {_alike(name)}" for name in threads if name]
    return Counter([*kinds, *filter(None, files)])


def grown(before: Inventory, now: Inventory) -> dict[str, tuple[int, int]]:
    """Kinds of which there are more than before. Threads of Python may fill the executor."""
    allowed = {"own thread": EXECUTOR_THREADS}
    return {
        kind: (before.get(kind, 0), count)
        for kind, count in now.items()
        if count > before.get(kind, 0) + allowed.get(kind, 0)
    }


def calm_inventory(node: LiveNode) -> Counter[str]:
    """The most of each kind in some seconds in which nobody asks anything."""
    found: Counter[str] = Counter()
    ends = time.monotonic() + CALM_S
    while time.monotonic() < ends:
        found |= inventory(node.pid)
        time.sleep(0.1)
    return found


def warmed_up(cluster: LiveCluster, node: LiveNode) -> Counter[str]:
    """What the node has without work, after it had some: parts that stay are there then."""
    cluster.place(on=node)
    unplace_all(cluster)
    return calm_inventory(node)


def unplace_all(cluster: LiveCluster) -> None:
    """Until no node has a runner: runners cost their daemon threads and files, too."""
    asked = cluster.nodes[0]

    def is_idle() -> bool:
        for instance_id in asked.state()["instances"]:
            asked.ask("DELETE", f"/instance/{instance_id}")
        return not any(node.runner_pids() for node in cluster.alive)

    wait_until(is_idle, "no runner", SETTLE_S)


def wait_no_growth(node: LiveNode, before: Inventory) -> Counter[str]:
    """Until the node has no more of anything than before; what it has then."""
    now: Counter[str] = Counter()

    def small() -> bool:
        now.clear()
        now.update(inventory(node.pid))
        return not grown(before, now)

    try:
        wait_until(small, f"{node.name} to be as small as before", SETTLE_S)
    except AssertionError as error:
        error.add_note(f"more than before: {grown(before, now)}; {connections(node)}")
        raise
    return now


@contextlib.contextmanager
def logged(node: LiveNode) -> Iterator[None]:
    """Once a minute what the node has goes to the log, to see when something grew."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(LOG_EVERY_S):
            found = inventory(node.pid)
            log.info("%s has %s: %s", node.name, totals(found), dict(found))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def totals(found: Inventory) -> dict[str, int]:
    threads = sum(count for kind, count in found.items() if "thread" in kind)
    return {"threads": threads, "files": sum(found.values()) - threads}


def connections(node: LiveNode) -> list[str]:
    try:
        found = psutil.Process(node.pid).net_connections()
    except psutil.Error as error:
        return [str(error)]
    return [f"{one.laddr} {one.raddr} {one.status}" for one in found]


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None  # it has ended meanwhile


def _target(file: Path) -> str | None:
    try:
        return _alike(str(file.readlink()))
    except OSError:
        return None


def _alike(name: str) -> str:
    """The same name for what differs only in a number or an id."""
    return _NUMBER.sub("N", name)
