"""Stopping one thread of a process while its others run on: a daemon whose event loop hangs.

A signal would stop the whole process. The kernel's debugging interface stops a single thread;
Zenoh's own threads go on and keep the node's sockets and its token alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator

import pytest

_ATTACH, _DETACH = 16, 17
_WALL = 0x40000000


@contextlib.contextmanager
def main_thread_stopped(pid: int) -> Iterator[None]:
    """The thread that runs the event loop stands still inside this block."""
    if sys.platform != "linux":
        pytest.skip("needs ptrace of Linux")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    # Whoever attaches must detach: the kernel binds a tracee to one thread.
    owner = threading.get_ident()
    if libc.ptrace(_ATTACH, pid, None, None) != 0:
        pytest.skip(f"may not trace a process: {os.strerror(ctypes.get_errno())}")
    os.waitpid(pid, _WALL)
    try:
        yield
    finally:
        assert threading.get_ident() == owner
        libc.ptrace(_DETACH, pid, None, None)
