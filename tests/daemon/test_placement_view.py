"""Placements and warnings from state and supervisor records."""

from __future__ import annotations

import pytest

from skulkd.observe.placement_view import view_placements
from skulkd.observe.warnings import short_id
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics
from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.machine import NodeIdentity
from skulkd.wire.runners import RunnerReady, RunnerWarmingUp
from skulkd.wire.state import State
from skulkd.wire.tasks import StartWarmup
from tests.daemon.builders import A, B, C, a_state, a_supervisor, a_task, an_instance

I1 = InstanceId("i1")
R0, R1 = RunnerId("i1-r0"), RunnerId("i1-r1")
T1 = TaskId("t1")


def placed(**fields: object) -> State:
    """Instance i1 over A and B."""
    return a_state(instances={I1: an_instance("i1", (B, A))}, **fields)


def warnings_of(
    state: State, *supervisors: RunnerSupervisorDiagnostics, master: NodeId | None = A
) -> list[str]:
    return view_placements(state, supervisors, A, master)[1]


def test_without_instances_there_is_nothing_to_say() -> None:
    assert view_placements(a_state(), (), A, A) == ([], [])


def test_a_placement_lists_its_ranks_in_order_with_every_task() -> None:
    state = placed(
        runners={R0: RunnerReady()},
        tasks={T1: a_task("t1", "i1"), TaskId("t9"): a_task("t9", "other")},
        node_identities={A: NodeIdentity(friendly_name="kite1"), B: NodeIdentity()},
    )
    [placement], warnings = view_placements(state, (), A, A)
    assert warnings == []
    assert (placement.instance_id, placement.model_id) == ("i1", "org/llama")
    assert placement.placement_node_ids == [B, A]
    assert placement.master_is_placement_node
    assert placement.local_node_is_placement_node
    first, second = placement.runners
    assert (first.device_rank, first.node_id, first.status_kind) == (0, B, "RunnerReady")
    assert (second.device_rank, second.node_id, second.status_kind) == (1, A, None)
    assert (first.friendly_name, second.friendly_name) == (None, "kite1")
    assert (first.is_local, first.is_master) == (False, False)
    assert (second.is_local, second.is_master) == (True, True)
    assert (second.start_layer, second.end_layer, second.n_layers) == (8, 16, 16)
    for runner in (first, second):
        [task] = runner.tasks
        assert (task.task_id, task.task_kind, task.task_status) == (
            "t1", "TextGeneration", "Running",
        )  # fmt: skip
        assert (task.command_id, task.runner_id) == ("command-of-t1", runner.runner_id)


def test_a_task_that_no_client_asked_for_has_no_command() -> None:
    task = StartWarmup(task_id=T1, instance_id=I1)
    [placement], _ = view_placements(placed(tasks={T1: task}), (), A, A)
    assert placement.runners[0].tasks[0].command_id is None


def test_a_master_outside_the_placement_is_told_and_more_when_it_warms_up() -> None:
    [placement], warnings = view_placements(placed(), (), A, C)
    assert not placement.master_is_placement_node
    assert placement.warnings == warnings == ["master C is not a placement node of instance i1"]
    warming = placed(runners={R1: RunnerWarmingUp(), R0: RunnerReady()})
    told = warnings_of(warming, master=C)
    assert len(told) == 2
    assert any("i1-r1 is warming up" in text for text in told)
    assert warnings_of(warming, master=A) == []
    assert warnings_of(warming, master=None) == []


@pytest.mark.parametrize(
    ("state", "supervisor", "expected"),
    [
        pytest.param(placed(), a_supervisor(), [], id="idle and alive"),
        pytest.param(
            placed(tasks={T1: a_task()}), a_supervisor(tasks=("t1",)), [], id="all agree"
        ),
        pytest.param(
            placed(),
            a_supervisor(tasks=("t1",)),
            ["has 1 tasks in progress, but cluster state has none for instance i1",
             "still reports TextGeneration:t1 in progress, but cluster state no longer tracks it"],
            id="W3 and W4: work that the cluster forgot",
        ),
        pytest.param(
            placed(),
            a_supervisor(tasks=("t1",), alive=False),
            ["still reports TextGeneration:t1 in progress, but cluster state no longer tracks it"],
            id="W4 alone: the dead do not count for W3",
        ),
        pytest.param(
            placed(tasks={T1: a_task(status="Cancelled")}),
            a_supervisor(tasks=("t1",)),
            ["still reports TextGeneration:t1 in progress, but cluster state says Cancelled"],
            id="W5: over for the cluster",
        ),
        pytest.param(
            placed(tasks={T1: a_task(status="Pending")}), a_supervisor(tasks=("t1",)), [],
            id="pending is live",
        ),
        pytest.param(
            placed(tasks={T1: a_task("t1", "other"), TaskId("t2"): a_task("t2", "i1")}),
            a_supervisor(tasks=("t1",)),
            ["its placement does not give it to this runner"],
            id="W6: the task of another instance",
        ),
        pytest.param(
            placed(tasks={T1: a_task()}),
            a_supervisor(runner="stranger", tasks=("t1",)),
            ["its placement does not give it to this runner"],
            id="W6: a runner the placement does not know",
        ),
        pytest.param(
            a_state(tasks={T1: a_task()}), a_supervisor(tasks=("t1",)), [],
            id="no placement, no W6",
        ),
    ],
)  # fmt: skip
def test_supervisors_that_disagree_with_the_state_are_named(
    state: State, supervisor: RunnerSupervisorDiagnostics, expected: list[str]
) -> None:
    told = warnings_of(state, supervisor)
    assert len(told) == len(expected)
    for words in expected:
        assert any(words in text for text in told)
    for placement in view_placements(state, (supervisor,), A, A)[0]:
        assert placement.warnings == told


def test_warnings_of_a_vanished_placement_still_reach_the_node() -> None:
    told = warnings_of(a_state(), a_supervisor(tasks=("t1",)))
    assert len(told) == 2


def test_warnings_are_sorted_and_said_once() -> None:
    told = warnings_of(placed(), a_supervisor(tasks=("t2", "t1", "t1")))
    assert told == sorted(set(told))
    assert len(told) == 3


@pytest.mark.parametrize(
    ("long", "short"), [("abc", "abc"), ("a" * 12, "a" * 12), ("0123456789abc", "01234567…9abc")]
)
def test_long_ids_are_shortened(long: str, short: str) -> None:
    assert short_id(long) == short
