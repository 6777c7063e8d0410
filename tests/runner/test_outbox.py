"""The way out never holds inference up for diagnostics, and never loses an answer."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator

import pytest

from skulkd.runner.framing import FrameReader, write_all
from skulkd.runner.pipe import MAX_MESSAGES, MAX_PHASES, SMALL, Outbox
from skulkd.runner.protocol import FromRunner, Phase, TaskAcknowledged, decode_from_runner
from skulkd.wire.ids import TaskId
from tests.runner.test_phases import Sink, a_recorder


def a_phase(sequence: int | None = None) -> Phase:
    sink = Sink()
    a_recorder(sink).point("idle", "runner_ready")
    return sink.offered[0]._replace(sequence=sequence)


class Pipe:
    """A real pipe with an outbox at its writing end."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        self.broken = threading.Event()
        room = select.poll()
        room.register(self.write_fd, select.POLLOUT)
        self.outbox = Outbox(
            lambda data: write_all(self.write_fd, data),
            self.broken.set,
            has_room=lambda: bool(room.poll(0)),
        )
        self._reader = FrameReader(self.read_fd)
        self._waiting: list[FromRunner] = []

    def receive(self) -> FromRunner:
        if not self._waiting:
            self._waiting = [decode_from_runner(frame) for frame in self._reader.read() or []]
        return self._waiting.pop(0)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    if not made.broken.is_set():
        os.close(made.read_fd)
    os.close(made.write_fd)


def test_messages_arrive_in_the_order_they_were_sent(pipe: Pipe) -> None:
    pipe.outbox.start()
    sent = [TaskAcknowledged(task_id=TaskId(str(number))) for number in range(100)]
    for message in sent:
        pipe.outbox.send(message)
    assert [pipe.receive() for _ in sent] == sent
    assert pipe.outbox.flush(10)


def acknowledged(name: str) -> TaskAcknowledged:
    return TaskAcknowledged(task_id=TaskId(name))


def test_what_is_sent_at_once_needs_no_thread(pipe: Pipe) -> None:
    pipe.outbox.send(acknowledged("now"), at_once=True)
    assert pipe.receive() == acknowledged("now")


def test_what_is_sent_at_once_overtakes_nobody(pipe: Pipe) -> None:
    pipe.outbox.send(acknowledged("before"))
    pipe.outbox.send(acknowledged("now"), at_once=True)
    pipe.outbox.start()
    assert [pipe.receive(), pipe.receive()] == [acknowledged("before"), acknowledged("now")]


@pytest.mark.parametrize("length", [SMALL, 100_000])
def test_what_may_not_fit_waits_in_the_queue_and_not_in_the_pipe(pipe: Pipe, length: int) -> None:
    """With a pipe that is almost full, and with a message that is larger than its room."""
    os.set_blocking(pipe.write_fd, False)
    filled = os.write(pipe.write_fd, bytes(1 << 20)) if length == SMALL else 0
    os.set_blocking(pipe.write_fd, True)
    large = acknowledged("x" * length)
    pipe.outbox.send(large, at_once=True)
    assert len(os.read(pipe.read_fd, filled)) == filled if filled else True
    pipe.outbox.start()
    assert pipe.receive() == large


def test_a_pipe_that_is_gone_is_noticed_at_once_too(pipe: Pipe) -> None:
    os.close(pipe.read_fd)
    pipe.outbox.send(acknowledged("now"), at_once=True)
    assert pipe.broken.is_set()


def test_phases_over_the_limit_are_dropped_and_counted(pipe: Pipe) -> None:
    for _ in range(MAX_PHASES + 3):
        pipe.outbox.offer(a_phase())
    pipe.outbox.start()
    arrived = [pipe.receive() for _ in range(MAX_PHASES)]
    assert all(isinstance(message, Phase) and message.dropped == 0 for message in arrived)
    pipe.outbox.offer(a_phase())
    last = pipe.receive()
    assert isinstance(last, Phase)
    assert last.dropped == 3


def test_answers_wait_for_room_instead_of_being_dropped(pipe: Pipe) -> None:
    message = TaskAcknowledged(task_id=TaskId("t"))
    for _ in range(MAX_MESSAGES):
        pipe.outbox.send(message)
    blocked = threading.Thread(target=pipe.outbox.send, args=(message,))
    blocked.start()
    pipe.outbox.start()
    for _ in range(MAX_MESSAGES + 1):
        assert pipe.receive() == message
    blocked.join(300)
    assert not blocked.is_alive()


def test_waiting_for_room_counts_as_progress() -> None:
    going_on = threading.Event()
    outbox = Outbox(lambda data: None, lambda: None, max_messages=1)
    message = TaskAcknowledged(task_id=TaskId("t"))
    outbox.send(message)
    blocked = threading.Thread(target=outbox.send, args=(message, going_on.set))
    blocked.start()
    assert going_on.wait(300)
    outbox.start()
    blocked.join(300)
    assert not blocked.is_alive()


def test_a_breadcrumb_waits_for_its_acknowledgement(pipe: Pipe) -> None:
    pipe.outbox.start()
    told: list[bool] = []
    asking = threading.Thread(target=lambda: told.append(pipe.outbox.deliver(a_phase(sequence=5))))
    asking.start()
    received = pipe.receive()
    assert isinstance(received, Phase)
    assert received.sequence == 5
    pipe.outbox.acknowledge(5)
    asking.join(300)
    assert told == [True]


def test_a_breadcrumb_that_nobody_acknowledges_does_not_wait_for_ever(pipe: Pipe) -> None:
    pipe.outbox.start()
    assert pipe.outbox.deliver(a_phase(sequence=1)) is False


def test_a_reader_that_went_away_is_reported(pipe: Pipe) -> None:
    os.close(pipe.read_fd)
    pipe.outbox.start()
    pipe.outbox.send(TaskAcknowledged(task_id=TaskId("t")))
    assert pipe.broken.wait(300)
