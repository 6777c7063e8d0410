"""The runner's ends of the two pipes to its supervisor: a reading and a writing thread.

The end of the incoming pipe means that the supervisor is gone. Orders of rank 0 join the queue of
incoming messages, so that a rank with nothing to do sleeps in one place. Phase entries are dropped
and counted when the outgoing pipe is slow; every other message waits for room, so that a
supervisor that stops reading holds the runner back instead of filling its memory.
"""

import queue
import select
import threading
import time
from collections import deque
from collections.abc import Callable

from skulkd.runner.framing import FrameError, FrameReader
from skulkd.runner.group.orders import Order, from_json
from skulkd.runner.protocol import (
    Ack,
    Cancel,
    Configure,
    FromRunner,
    Phase,
    ProtocolError,
    Pulse,
    RunTask,
    decode_to_runner,
    encode,
)

Message = Configure | RunTask | Cancel | Order


class Inbox:
    """Acknowledgements do not queue: they go to `on_ack` at once, from the reading thread."""

    def __init__(
        self,
        fd: int,
        *,
        on_ack: Callable[[int], None],
        on_end: Callable[[], None],
        on_broken: Callable[[str], None],
    ) -> None:
        self._reader = FrameReader(fd)
        self._unread = select.poll()
        self._unread.register(fd, select.POLLIN)
        self._on_ack = on_ack
        self._on_end = on_end
        self._on_broken = on_broken
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> Message:
        """The next message, however long it takes: an idle runner sleeps here."""
        return self._messages.get()

    def wait_briefly(self, seconds: float) -> Message | None:
        """The next message, if it comes soon.

        What lies in the pipe has come: on a busy machine the reading thread gets its turn late.
        """
        while True:
            try:
                return self._messages.get(timeout=seconds)
            except queue.Empty:
                # Not for a pipe that has only ended: nobody would ever read that.
                if not any(event & select.POLLIN for _, event in self._unread.poll(0)):
                    return None

    def order(self, content: bytes) -> None:
        """Queue an order of rank 0, which came another way."""
        self._messages.put(from_json(content))

    def arrived(self) -> list[Message]:
        """What is here now, without waiting."""
        messages: list[Message] = []
        while not self._messages.empty():
            messages.append(self._messages.get_nowait())
        return messages

    def _run(self) -> None:
        try:
            while frames := self._reader.read():
                for frame in frames:
                    message = decode_to_runner(frame)
                    if isinstance(message, Ack):
                        self._on_ack(message.sequence)
                    else:
                        self._messages.put(message)
        except (FrameError, ProtocolError) as error:
            self._on_broken(str(error))
        except OSError:
            self._on_end()
        else:
            self._on_end()


MAX_MESSAGES = 4096
MAX_PHASES = 256
ACK_WAIT_S = 0.5
# What a pipe that is said to be writable takes whole.
SMALL = select.PIPE_BUF
_FULL_POLL_S = 0.5


class Outbox:
    """`write` takes bytes and may block; `on_broken` is told when the pipe is gone.

    `has_room` says whether SMALL bytes could be written now without blocking.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        on_broken: Callable[[], None],
        max_messages: int = MAX_MESSAGES,
        has_room: Callable[[], bool] = lambda: False,
    ) -> None:
        self._write = write
        self._has_room = has_room
        self._max_messages = max_messages
        self._on_broken = on_broken
        self._queue: deque[FromRunner] = deque()
        self._phases = 0
        self._dropped = 0
        self._unwritten = 0
        self._acknowledged = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(
        self,
        message: FromRunner,
        meanwhile: Callable[[], None] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Queue a message that must arrive; waits while the queue is full.

        `meanwhile` is called now and then in that time: waiting here is no hang of the model.
        `at_once` saves waking the thread, where the pipe is free.
        """
        with self._changed:
            if at_once and not self._unwritten and self._has_room():
                data = encode(message)
                if len(data) <= SMALL:
                    self._put(data)
                    return
            while len(self._queue) - self._phases >= self._max_messages:
                self._changed.wait(_FULL_POLL_S)
                if meanwhile is not None:
                    meanwhile()
            self._append(message)

    def post(self, message: FromRunner) -> None:
        """Queue a last message; does not wait, because nothing will follow it."""
        with self._changed:
            self._append(message)

    def offer(self, phase: Phase) -> None:
        """Queue a phase entry, or drop and count it. Never waits."""
        with self._changed:
            if self._phases >= MAX_PHASES:
                self._dropped += 1
                return
            self._phases += 1
            self._append(self._counted(phase))

    def beat(self, pulse: Pulse) -> bool:
        """Say where the runner is, unless something else is still on its way. Never waits."""
        with self._changed:
            if self._unwritten:
                return False
            self._append(pulse)
            return True

    def deliver(self, phase: Phase) -> bool:
        """Queue a breadcrumb and wait for its Ack, half a second at most. False when none came."""
        sequence = phase.sequence or 0
        deadline = time.monotonic() + ACK_WAIT_S
        with self._changed:
            self._phases += 1
            self._append(self._counted(phase))
            return self._changed.wait_for(
                lambda: self._acknowledged >= sequence, max(0.0, deadline - time.monotonic())
            )

    def acknowledge(self, sequence: int) -> None:
        with self._changed:
            self._acknowledged = max(self._acknowledged, sequence)
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued is in the pipe. False when time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: self._unwritten == 0, timeout_s)

    def _counted(self, phase: Phase) -> Phase:
        return phase._replace(dropped=self._dropped) if self._dropped else phase

    def _append(self, message: FromRunner) -> None:
        self._queue.append(message)
        self._unwritten += 1
        self._changed.notify_all()

    def _next_batch(self) -> list[FromRunner]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue)
            batch = list(self._queue)
            self._queue.clear()
            self._phases = 0
            self._changed.notify_all()
            return batch

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if not self._put(b"".join(encode(message) for message in batch)):
                return
            with self._changed:
                self._unwritten -= len(batch)
                self._changed.notify_all()

    def _put(self, data: bytes) -> bool:
        try:
            self._write(data)
        except OSError:
            self._on_broken()
            return False
        return True
