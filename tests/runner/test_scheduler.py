"""Who takes part in the next step."""

from __future__ import annotations

import pytest

from skulkd.runner.scheduler import Scheduler, StepPlan
from skulkd.wire.ids import TaskId


def scheduler(slots: int, *waiting: tuple[str, int]) -> Scheduler:
    made = Scheduler(slots)
    for name, choices in waiting:
        made.submit(TaskId(name), choices)
    return made


@pytest.mark.parametrize(
    ("slots", "waiting", "admitted"),
    [
        (8, [("a", 1), ("b", 1)], ("a", "b")),
        (2, [("a", 1), ("b", 1), ("c", 1)], ("a", "b")),
        (4, [("a", 3), ("b", 2), ("c", 1)], ("a",)),
        (2, [("a", 5), ("b", 1)], ("a",)),
        (4, [], ()),
    ],
)
def test_requests_enter_in_order_while_there_are_slots(
    slots: int, waiting: list[tuple[str, int]], admitted: tuple[str, ...]
) -> None:
    assert scheduler(slots, *waiting).plan().admit == admitted


def test_a_cancelled_request_frees_its_slots_in_the_same_plan() -> None:
    made = scheduler(1, ("a", 1), ("b", 1))
    made.apply(made.plan())
    assert made.plan() == StepPlan()
    assert made.cancel(TaskId("a"))
    plan = made.plan()
    assert plan == StepPlan(admit=(TaskId("b"),), cancel=(TaskId("a"),))
    made.apply(plan)
    assert made.active == ("b",)
    assert made.plan() == StepPlan()


def test_a_queued_request_can_be_cancelled_before_it_enters() -> None:
    made = scheduler(1, ("a", 1), ("b", 1))
    made.apply(made.plan())
    made.cancel(TaskId("b"))
    made.apply(made.plan())
    made.finished(TaskId("a"))
    assert not made


def test_an_unknown_task_cannot_be_cancelled() -> None:
    assert not scheduler(1).cancel(TaskId("gone"))


def test_a_follower_carries_out_the_plan_of_another_rank() -> None:
    follower = scheduler(8, ("a", 1), ("b", 1))
    follower.apply(StepPlan(admit=(TaskId("b"),)))
    assert follower.active == ("b",)
    assert follower.queued == 1
