"""Running a generator that yields what is to be done and gets what came of it.

The generators hold the protocol, without I/O; `perform` does the I/O. An error of `perform` is
raised inside the generator, which may handle it and go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def drive(steps: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """The result of the generator."""
    try:
        step = next(steps)
        while True:
            try:
                result = perform(step)
            except Exception as error:  # noqa: BLE001 (handed to the generator, which raises it)
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as done:
        value: T = done.value
        return value


async def drive_async(steps: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """The same with an awaitable `perform`."""
    try:
        step = next(steps)
        while True:
            try:
                result = await perform(step)
            except Exception as error:  # noqa: BLE001 (handed to the generator, which raises it)
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as done:
        value: T = done.value
        return value
