"""Threads that compute beside the main one, each on an MLX stream of its own.

On a CPU a stream is one thread: prompts that are read in one go leave the other cores idle, unless
the matrix library has threads of its own.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import mlx.core as mx

_MOST = 8


def cores_to_read_with() -> int:
    """Streams that may compute at the same time: an accelerator takes whatever it gets in one."""
    if mx.default_device() != mx.cpu:
        return 1
    allowed = getattr(os, "sched_getaffinity", None)
    count = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    return min(count, _MOST)


class Helpers:
    """What they are given must be computed, and they compute all of what they give back.

    An array that is not belongs to the stream of the thread that made it, and no other can
    compute it.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="helper") if most else None

    def close(self) -> None:
        """End the threads. Streams that are left to the end of the process may abort it."""
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Do all of it, the first job in this thread. Raises what one of them raised."""
        if len(jobs) == 1 or self._pool is None:
            for job in jobs:
                job()
            return
        others = [self._pool.submit(job) for job in jobs[1:]]
        try:
            jobs[0]()
        finally:
            wait(others)
        for other in others:
            other.result()
