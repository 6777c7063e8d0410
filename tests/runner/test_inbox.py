"""Waiting a moment for the next message."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator
from typing import Any

import pytest

from skulkd.runner.pipe import Inbox
from skulkd.runner.protocol import Cancel, encode
from skulkd.wire.ids import TaskId

MESSAGE = Cancel(task_id=TaskId("t"))


class LateReader:
    """The queue of a reading thread that gets its turn only when it was waited for twice."""

    def __init__(self) -> None:
        self.asked = 0

    def get(self, timeout: float) -> Any:
        self.asked += 1
        if self.asked == 1:
            raise queue.Empty
        return MESSAGE


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_pipe_that_has_ended_brings_nothing_more() -> None:
    read_fd, write_fd = os.pipe()
    os.close(write_fd)
    inbox = Inbox(read_fd, on_ack=lambda _: None, on_end=lambda: None, on_broken=lambda _: None)
    assert inbox.wait_briefly(0.001) is None
    os.close(read_fd)


@pytest.mark.parametrize("in_the_pipe", [True, False])
def test_what_lies_in_the_pipe_has_come(pipe: tuple[int, int], in_the_pipe: bool) -> None:
    inbox = Inbox(pipe[0], on_ack=lambda _: None, on_end=lambda: None, on_broken=lambda _: None)
    inbox._messages = LateReader()  # type: ignore[assignment]
    if in_the_pipe:
        os.write(pipe[1], encode(MESSAGE))
    assert inbox.wait_briefly(0.001) == (MESSAGE if in_the_pipe else None)
