"""Which requests are admitted."""

from __future__ import annotations

import pytest

from skulkd.runner.generation.scheduler import AdmissionQueue
from skulkd.wire.ids import TaskId


def queue(slots: int, waiting: list[tuple[str, int]]) -> AdmissionQueue:
    made = AdmissionQueue(slots)
    for name, choices in waiting:
        made.add(TaskId(name), choices)
    return made


@pytest.mark.parametrize(
    ("slots", "used", "waiting", "admitted"),
    [
        (8, 0, [("a", 1), ("b", 1)], ["a", "b"]),
        (2, 0, [("a", 1), ("b", 1), ("c", 1)], ["a", "b"]),
        (2, 1, [("a", 1), ("b", 1)], ["a"]),
        (1, 1, [("a", 1)], []),
        (4, 0, [("a", 3), ("b", 2), ("c", 1)], ["a"]),
        (2, 0, [("a", 5), ("b", 1)], ["a"]),
        (2, 1, [("a", 5), ("b", 1)], []),
        (4, 0, [], []),
    ],
)
def test_requests_are_admitted_in_order_while_there_are_slots(
    slots: int, used: int, waiting: list[tuple[str, int]], admitted: list[str]
) -> None:
    made = queue(slots, waiting)
    assert made.admit(used) == admitted
    assert len(made) == len(waiting) - len(admitted)


def test_a_removed_request_is_not_admitted() -> None:
    made = queue(2, [("a", 1), ("b", 1)])
    made.remove(TaskId("a"))
    made.remove(TaskId("unknown"))
    assert made.admit(0) == ["b"]
