"""The ring of events and the array made from it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.observe.event_log import EventLog, json_chunks
from skulkd.wire.events import TaskAcknowledged
from skulkd.wire.ids import TaskId


def numbered(number: int) -> TaskAcknowledged:
    return TaskAcknowledged(task_id=TaskId(str(number)))


def filled(count: int, capacity: int) -> EventLog:
    log = EventLog(capacity)
    for number in range(count):
        assert log.append(numbered(number)) == number
    return log


def ids_of(chunks: list[bytes]) -> list[int]:
    return [int(event["TaskAcknowledged"]["task_id"]) for event in json.loads(b"".join(chunks))]


@given(st.integers(0, 60), st.integers(1, 40), st.integers(1, 50))
@settings(max_examples=80, deadline=None)
def test_the_array_is_the_newest_events_whatever_the_chunks(
    count: int, capacity: int, chunk: int
) -> None:
    log = filled(count, capacity)
    chunks = list(json_chunks(log, chunk))
    assert ids_of(chunks) == list(range(count))[-capacity:]
    assert len(log) == count
    assert log.first_index == max(0, count - capacity)


def test_an_empty_log_is_an_empty_array() -> None:
    assert list(json_chunks(EventLog())) == [b"[]"]


def test_events_that_arrive_while_reading_are_not_part_of_it() -> None:
    log = filled(10, 100)
    chunks = []
    for chunk in json_chunks(log, 4):
        chunks.append(chunk)
        log.append(numbered(99))
    assert ids_of(chunks) == list(range(10))


def test_events_that_leave_the_ring_while_reading_do_not_break_the_array() -> None:
    log = filled(10, 10)
    chunks = []
    for position, chunk in enumerate(json_chunks(log, 2)):
        chunks.append(chunk)
        if position == 0:
            for _ in range(5):
                log.append(numbered(99))
    assert ids_of(chunks) == [0, 1, 5, 6, 7, 8, 9]


def test_a_log_that_moved_on_completely_still_ends_the_array() -> None:
    log = filled(4, 4)
    chunks = []
    for chunk in json_chunks(log, 2):
        chunks.append(chunk)
        for _ in range(10):
            log.append(numbered(99))
    assert ids_of(chunks) == [0, 1]


def test_keys_are_snake_case() -> None:
    [first, _] = json_chunks(filled(1, 1))
    assert b'{"TaskAcknowledged":{"event_id":' in first
