"""Every core busy: what a cluster must bear without taking anybody for dead."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

_LOOP = "while True: pass"


@contextlib.contextmanager
def busy_cores(count: int | None = None) -> Iterator[None]:
    """A loop for every core, as nice as this process, so that daemons get no preference."""
    loops = [
        subprocess.Popen([sys.executable, "-c", _LOOP], stdin=subprocess.DEVNULL)
        for _ in range(count or os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait(60)
