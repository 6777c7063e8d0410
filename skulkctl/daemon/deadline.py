"""Run a blocking call with a hard limit, whatever it blocks in (name lookup, slow peer)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


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
