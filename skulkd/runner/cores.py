"""How many cores a runner may compute on where there is no accelerator."""

import os
import socket
from pathlib import Path

import mlx.core as mx

_MOST = 8
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def cores_here(wanted: int = 0, ranks: int = 1) -> int:
    """Streams that may compute at the same time: an accelerator takes whatever it gets in one.

    As many as are wanted, or this rank's share of what its process may use: the others on its
    machine compute, too, and one that waits for the rest of its group spins.
    """
    if mx.default_device() != mx.cpu:
        return 1
    allowed = getattr(os, "sched_getaffinity", None)
    count = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    return min(count, wanted) if wanted else max(1, min(count // ranks, _MOST))


def machine_mark() -> str:
    """The same for all ranks on one machine, also in containers: they share its cores."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()
