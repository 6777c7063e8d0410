"""Which processes belong to the nodes below a directory, and which of them nobody owns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import psutil

from tests.cluster_live.live_node import LiveNode


def processes_below(base: Path) -> dict[int, str]:
    """Pid and command of every process whose home is in this directory; no zombies."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ours = process.environ().get("SKULK_HOME", "").startswith(f"{base}/")
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())
    return found


def family(node: LiveNode) -> set[int]:
    """A daemon and all that it started, directly or not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        own = psutil.Process(node.pid)
        return {own.pid, *(child.pid for child in own.children(recursive=True))}
    return set()


def leaked(base: Path, nodes: Iterable[LiveNode]) -> dict[int, str]:
    """Processes below the directory that belong to no living daemon."""
    owned = {pid for node in nodes if node.alive for pid in family(node)}
    return {pid: words for pid, words in processes_below(base).items() if pid not in owned}
