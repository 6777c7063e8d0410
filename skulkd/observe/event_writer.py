"""Brings events to the disk in a thread of its own, so that a slow disk costs nobody time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from skulkd.observe.event_disk import DiskStatus, EventDisk, Record
from skulkd.wire.events import Event

QUEUE_EVENTS = 100_000
BATCH_EVENTS = 512
LOOK_EVERY_S = 10.0
# A thread that wakes for every event takes the interpreter from whoever made it.
GATHER_S = 0.1


class EventWriter:
    """`take` never waits: what does not fit the queue is counted."""

    def __init__(
        self,
        disk: EventDisk,
        queue_events: int = QUEUE_EVENTS,
        now: Callable[[], float] = time.time,
        gather_s: float = GATHER_S,
    ) -> None:
        self.disk = disk
        self._now = now
        self._gather_s = gather_s
        self._queue: deque[tuple[int, float, Event]] = deque()
        self._room = queue_events
        self._wanted = threading.Condition()
        self._stopping = False
        self._hurried = False
        self._idle = True
        self.lost = 0
        self._thread = self._new_thread()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Also again, when the thread has died."""
        if self._thread.ident is not None:
            self._thread = self._new_thread()
        self._thread.start()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="event-log", daemon=True)

    def take(self, index: int, event: Event) -> None:
        if len(self._queue) >= self._room:
            self.lost += 1
            return
        self._queue.append((index, self._now(), event))
        if self._idle:
            with self._wanted:
                self._idle = False
                self._wanted.notify()

    @property
    def status(self) -> DiskStatus:
        return self.disk.status

    def flush(self, deadline_s: float) -> bool:
        """Wait until all that was taken is written or counted; False when time ran out."""
        ends = time.monotonic() + deadline_s
        with self._wanted:
            self._hurried = True
            self._wanted.notify_all()
            try:
                while self._queue or not self._idle:
                    left_s = ends - time.monotonic()
                    if left_s <= 0:
                        return False
                    self._wanted.wait(min(left_s, 0.05))
            finally:
                self._hurried = False
        return True

    def stop(self, deadline_s: float = 2.0) -> None:
        """Write what is left and archive the file, but do not wait longer than this."""
        with self._wanted:
            self._stopping = True
            self._wanted.notify_all()
        if self._thread.is_alive():
            self._thread.join(deadline_s)

    def _run(self) -> None:
        self.disk.open()
        while True:
            batch = self._next_batch()
            if batch:
                self.disk.append([_record(*one) for one in batch])
            elif self._stopping:
                break
            else:
                self.disk.look()
        self.disk.close()

    def _next_batch(self) -> list[tuple[int, float, Event]]:
        """Empty: nothing came for a while, or it is time to stop."""
        with self._wanted:
            if not self._queue:
                self._idle = True
                self._wanted.notify_all()
                # What `take` added before it could see that we are idle is here now.
                if not (self._queue or self._stopping):
                    self._wanted.wait(LOOK_EVERY_S)
                self._idle = False
            if 0 < len(self._queue) < BATCH_EVENTS:
                self._wanted.wait_for(lambda: self._stopping or self._hurried, self._gather_s)
        return [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_EVENTS))]


def _record(index: int, at_s: float, event: Event) -> Record:
    return Record(index, at_s, event.model_dump_json(by_alias=False).encode())
