"""Hard limits for blocking calls, whatever they block in (name lookup, slow peer)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")

_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


def call_within(seconds: float, work: Callable[[], Result]) -> Result:
    """The result of `work()`; raises TimeoutError when it takes longer.

    The abandoned call goes on in a daemon thread that dies with the process. An exception of
    `work` is raised here. Ctrl-C is noticed at once.
    """
    results: list[Result] = []
    failures: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 (re-raised in the caller's thread)
            failures.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not results:
        raise TimeoutError
    return results[0]


class Deadline:
    """Hangs up when time is up, so that a read in another thread ends. None never hangs up.

    The reading thread stays the caller's own: ctrl-C ends its read, which a read in a helper
    thread would survive, together with the connection.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s
        self.has_passed = False
        self._socket: socket.socket | None = None
        self._timer = None if limit_s is None else threading.Timer(limit_s, self._expire)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def on_event(self, name: str, info: Mapping[str, Any]) -> None:
        """The `trace` of a request of httpx, which tells which socket was opened."""
        if name in _CONNECTED:
            self._socket = info["return_value"].get_extra_info("socket")
            if self.has_passed:
                self._hang_up()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.has_passed = True
        self._hang_up()

    def _hang_up(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # it is closed already
                # Not the method of a TLS socket, which is not made for a second thread.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
