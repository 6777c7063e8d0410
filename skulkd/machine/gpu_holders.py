"""Processes that hold memory of a GPU and do not belong to this daemon: runners that a crashed
daemon left behind, or other programs. Placement cannot use that memory.
"""

import os

import psutil

from skulkd.machine.accelerator_nvidia import Gpu

# A desktop takes less.
WORTH_SAYING_BYTES = 1024**3


def held_by_others(gpu: Gpu) -> list[str]:
    """A warning for each of them. In a container the driver's process ids may be unknown here."""
    large = {pid: held for pid, held in gpu.processes if held >= WORTH_SAYING_BYTES}
    if not large:
        return []
    own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    names = {pid: _name(pid) for pid in large if pid not in own}
    return [
        f"{large[pid] / 1024**3:.1f} GiB of {gpu.metrics.name} are held by {name} (pid {pid}),"
        " which is not a runner of this node: no model can use them"
        for pid, name in names.items()
        if name is not None
    ]


def _name(pid: int) -> str | None:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return None
