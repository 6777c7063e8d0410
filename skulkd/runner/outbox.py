"""The way out: a bounded queue and one thread that writes it to the pipe.

Phase entries are dropped and counted when the pipe is slow. Everything else waits its turn, so
a supervisor that stops reading holds the runner back instead of filling its memory.
"""

import select
import threading
import time
from collections import deque
from collections.abc import Callable

from skulkd.runner.protocol import FromRunner, Phase, Pulse, encode

MAX_MESSAGES = 4096
MAX_PHASES = 256
ACK_WAIT_S = 0.5
# What a pipe that is said to be writable takes whole.
SMALL = select.PIPE_BUF
_PATIENCE_S = 0.5


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
                self._changed.wait(_PATIENCE_S)
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

    def _take(self) -> list[FromRunner]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue)
            batch = list(self._queue)
            self._queue.clear()
            self._phases = 0
            self._changed.notify_all()
            return batch

    def _run(self) -> None:
        while True:
            batch = self._take()
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
