"""Events with position and time, from the disk and then from memory, as one stream of lines.

The disk remembers more than memory does; what is not written yet comes from memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from skulkd.observe.event_disk import Record, read_records
from skulkd.observe.event_log import EventLog

PIECE_EVENTS = 256


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events: from a position on, from a moment on, of some kinds."""

    after: int = 0
    since_s: float | None = None
    kinds: frozenset[str] = frozenset()

    def fits(self, record: Record) -> bool:
        if record.index < self.after:
            return False
        if self.since_s is not None and record.at_s < self.since_s:
            return False
        return not self.kinds or kind_of(record.payload) in self.kinds


def kind_of(payload: bytes) -> str:
    """The one key of the event's object, without reading all of it."""
    start = payload.find(b'"') + 1
    return payload[start : payload.find(b'"', start)].decode("utf-8", "replace")


def line_of(record: Record) -> bytes:
    """`{"index": 7, "at": "…", "kind": "TaskCreated", "event": {…}}`; no time when not known."""
    at = None
    if record.at_s > 0:
        at = datetime.fromtimestamp(record.at_s, UTC).isoformat(timespec="milliseconds")
    head = json.dumps({"index": record.index, "at": at, "kind": kind_of(record.payload)})
    return head[:-1].encode() + b', "event": ' + record.payload + b"}\n"


def from_disk(file: Path, wanted: EventFilter) -> Iterator[Record]:
    """What the file holds; nothing when there is no file."""
    try:
        yield from filter(wanted.fits, read_records(file))
    except OSError:
        return


def from_memory(log: EventLog, start: int, wanted: EventFilter, at_s: float) -> list[Record]:
    """At most a piece of what memory still holds from a position on, however few of it fit."""
    first = max(start, log.first_index)
    events = log.between(first, first + PIECE_EVENTS)
    return [
        Record(first + number, at_s, event.model_dump_json(by_alias=False).encode())
        for number, event in enumerate(events)
    ]
