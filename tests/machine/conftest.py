"""Real child processes that never outlive their test, and trees of kernel files."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

Tree = Mapping[str, str]


class StartChild(Protocol):
    """Starts a process in a group of its own."""

    def __call__(self, *argv: str) -> subprocess.Popen[bytes]: ...


@pytest.fixture
def start_child() -> Iterator[StartChild]:
    """A factory of processes; they and what they started are killed when the test ends."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(child)
        return child

    try:
        yield start
    finally:
        for child in started:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if child.stdout:
                child.stdout.close()


@pytest.fixture
def write_tree(tmp_path: Path) -> Callable[[Tree], Path]:
    """Writes a pretended / below the test's folder; a value `-> x` makes a link to x."""

    def write(files: Tree) -> Path:
        root = tmp_path / "root"
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content.startswith("-> "):
                path.symlink_to(content.removeprefix("-> "))
            else:
                path.write_text(content)
        return root

    return write


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 300.0) -> None:
    """Ask again and again until it is so; fail with `what` when it never is."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"never happened: {what}")
        time.sleep(0.02)
