"""Which cores a runner computes on where there is no accelerator."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import mlx.core as mx

_MOST = 8
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_THREADS = Path("/proc/self/task")


def cores_here(wanted: int = 0, ranks: int = 1) -> int:
    """Streams that may compute at the same time: an accelerator takes whatever it gets in one.

    As many as are wanted, or this rank's share of what its process may use: the other ranks on its
    machine compute, too.
    """
    if mx.default_device() != mx.cpu:
        return 1
    allowed = getattr(os, "sched_getaffinity", None)
    count = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    return min(count, wanted) if wanted else max(1, min(count // ranks, _MOST))


def share_machine(wanted: int, rank: int, machines: Sequence[object]) -> int:
    """The cores of this rank, which leaves the rest to other ranks of its group on this machine.

    `machines` has the `machine_id` of every rank.
    """
    here = [at for at, mark in enumerate(machines) if mark == machine_id()]
    cores = cores_here(wanted, len(here))
    if len(here) > 1 and mx.default_device() == mx.cpu:
        pin_to_share(cores, here.index(rank), len(here))
    return cores


def pin_to_share(cores: int, place: int, ranks: int) -> None:
    """Let all threads of this process run on its share of the cores only, if `cores` fit there.

    A step of MLX wakes its computing thread for every operation, hundreds of times. On the same
    core that is cheap; on another one it costs an interrupt, in a virtual machine 10 to 20 µs.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    share = share_of(sorted(os.sched_getaffinity(0)), place, ranks)
    if cores > len(share):
        return
    for thread in _THREADS.iterdir():
        # One that has ended meanwhile needs no core.
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), share)


def share_of(cores: list[int], place: int, ranks: int) -> list[int]:
    """The cores of the rank in this place; none where there are fewer cores than ranks."""
    count = len(cores)
    if count < ranks:
        return []
    return cores[count * place // ranks : count * (place + 1) // ranks]


def machine_id() -> str:
    """The same for all ranks on one machine, also in containers: they share its cores."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()
