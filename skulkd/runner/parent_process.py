"""Ending with the parent: a kernel signal where there is one, and a watch on the parent's id."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5


def die_with_parent() -> bool:
    """On Linux the kernel kills this process when its parent ends, whatever it is doing then.

    False where there is no such thing: use `watch_parent` there.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return True


def watch_parent(parent: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone` once this process has another parent; for systems without that signal."""

    def watch() -> None:
        stop = threading.Event()
        while os.getppid() == parent:
            stop.wait(_POLL_S)
        on_gone()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
