"""The events of this session, newest kept: a bounded ring with absolute positions.

Knows nothing of what the events mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from skulkd.wire.events import OWN_KINDS, Event

CAPACITY = 20_000


class EventLog:
    """Appends for ever, remembers the last events; position counts from the session's start."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._events: deque[Event] = deque(maxlen=capacity)
        self._appended = 0
        self.sink: Callable[[int, Event], None] | None = None
        """Told of every event and its position; it must not wait."""

    def __len__(self) -> int:
        """How many events were appended, also those no longer kept."""
        return self._appended

    @property
    def first_index(self) -> int:
        """Position of the oldest event still kept."""
        return self._appended - len(self._events)

    def append(self, event: Event) -> int:
        """Its position."""
        self._events.append(event)
        self._appended += 1
        if self.sink is not None:
            self.sink(self._appended - 1, event)
        return self._appended - 1

    def restart(self, index: int) -> None:
        """Forget everything; the next event has this position. What came before is not known."""
        self._events.clear()
        self._appended = index

    def between(self, start: int, stop: int) -> list[Event]:
        """The events at these positions that are still kept."""
        first = self.first_index
        positions = range(max(start, first) - first, min(stop, self._appended) - first)
        return [self._events[position] for position in positions]


def json_chunks(log: EventLog, chunk_events: int = 256) -> Iterator[bytes]:
    """One JSON array in pieces; events that arrive meanwhile are not part of it.

    snake_case inside the tags. A slow reader may lose events that leave the ring, never
    the form of the array.
    """
    end = len(log)
    index = log.first_index
    opening = b"["
    while (index := max(index, log.first_index)) < end:
        events = log.between(index, min(index + chunk_events, end))
        if not events:
            break  # the log began anew meanwhile
        index += len(events)
        texts = [
            event.model_dump_json(by_alias=False)
            for event in events
            if type(event).__name__ not in OWN_KINDS
        ]
        if texts:
            yield opening + ",".join(texts).encode()
            opening = b","
    yield b"[]" if opening == b"[" else b"]"
