"""The plan as a table: which action follows from the state and the runners of this node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import (
    RunnerConnected,
    RunnerFailed,
    RunnerIdle,
    RunnerLoaded,
    RunnerLoading,
    RunnerReady,
    RunnerRunning,
    RunnerStatus,
    RunnerWarmingUp,
)
from skulkd.wire.state import State
from skulkd.wire.tasks import TaskStatus
from skulkd.worker.group_messages import GroupLevel
from skulkd.worker.lifecycle import RunnerState
from skulkd.worker.plan import (
    Action,
    AddRunner,
    CancelRequest,
    RunnerView,
    Step,
    StopRunner,
    TakeStep,
    next_check,
    plan,
)
from tests.worker.rig import NODE, a_request, an_instance

NOW = 100.0
UP, STARTING = RunnerState.UP, RunnerState.STARTING
PREPARING, JOINED = RunnerState.PREPARING, RunnerState.JOINED


def runner_of(instance: Instance) -> RunnerId:
    (runner_id,) = instance.shard_assignments.runner_to_shard
    return runner_id


INSTANCE = an_instance()
RUNNER = runner_of(INSTANCE)
STATE = State(instances={INSTANCE.instance_id: INSTANCE})


def planned(state: State, runners: Mapping[RunnerId, RunnerView]) -> list[Action]:
    return plan(state, NODE, runners, NOW)


def alone(state: RunnerState, status: RunnerStatus | None = None, **facts: Any) -> RunnerView:
    """A runner whose leader lets it go as far as it can."""
    return RunnerView(state, status or RunnerIdle(), **{"level": GroupLevel.WARM, **facts})


def a_rank(state: RunnerState, status: RunnerStatus | None = None, **facts: Any) -> RunnerView:
    """Rank 0 of two."""
    return RunnerView(state, status or RunnerIdle(), **{"size": 2, **facts})


LAST = {"rank": 1}
START, CONNECT = {"level": GroupLevel.START}, {"level": GroupLevel.CONNECT}
ASKED_TO_LOAD = frozenset({Step.LOAD})


@pytest.mark.parametrize(
    ("runner", "step"),
    [
        pytest.param(alone(STARTING), None, id="not reported yet"),
        pytest.param(alone(UP), Step.LOAD, id="idle"),
        pytest.param(alone(UP, requested=ASKED_TO_LOAD), None, id="asked to load"),
        pytest.param(alone(UP, RunnerLoading()), None, id="loading"),
        pytest.param(alone(UP, RunnerLoaded(), requested=ASKED_TO_LOAD), Step.WARM_UP, id="loaded"),
        pytest.param(
            alone(UP, RunnerLoaded(), requested=ASKED_TO_LOAD | {Step.WARM_UP}),
            None,
            id="asked to warm up",
        ),
        pytest.param(alone(UP, RunnerWarmingUp()), None, id="warming up"),
        pytest.param(alone(UP, RunnerReady()), None, id="ready"),
        pytest.param(alone(UP, RunnerRunning()), None, id="running"),
        pytest.param(alone(UP, RunnerFailed()), None, id="failed and not yet gone"),
        pytest.param(alone(RunnerState.STOPPING, RunnerReady()), None, id="stopping"),
        pytest.param(alone(RunnerState.WAITING, RunnerFailed()), None, id="waits after a crash"),
        pytest.param(alone(RunnerState.JOINING), Step.JOIN, id="files of a single rank"),
        pytest.param(alone(JOINED), Step.START, id="a single rank starts"),
        pytest.param(alone(UP, RunnerReady(), attempt_over=True), Step.END_ATTEMPT, id="restart"),
        pytest.param(a_rank(PREPARING), Step.PREPARE, id="not prepared"),
        pytest.param(a_rank(PREPARING, busy=True), None, id="preparing"),
        pytest.param(a_rank(PREPARING, retry_at=NOW + 1), None, id="prepared again later"),
        pytest.param(a_rank(RunnerState.REFUSED), None, id="cannot take part"),
        pytest.param(a_rank(RunnerState.WAITING), None, id="prepared, no attempt"),
        pytest.param(a_rank(RunnerState.ENDED), None, id="out of the attempt"),
        pytest.param(a_rank(RunnerState.JOINING), Step.JOIN, id="an attempt begins"),
        pytest.param(a_rank(RunnerState.JOINING, busy=True), None, id="joining"),
        pytest.param(a_rank(JOINED, level=GroupLevel.JOIN), None, id="others join"),
        pytest.param(a_rank(JOINED, **START), Step.START, id="all have joined"),
        pytest.param(a_rank(STARTING, **START), None, id="a rank not reported yet"),
        pytest.param(a_rank(UP, **START), Step.CONNECT, id="an idle rank"),
        pytest.param(a_rank(UP, **LAST, **START), None, id="the last waits for the others"),
        pytest.param(a_rank(UP, **LAST, **CONNECT), Step.CONNECT, id="the last connects"),
        pytest.param(
            a_rank(UP, requested=frozenset({Step.CONNECT}), **START), None, id="asked to connect"
        ),
        pytest.param(a_rank(UP, RunnerConnected(), **START), Step.LOAD, id="connected"),
        pytest.param(a_rank(UP, RunnerLoaded(), **CONNECT), None, id="others still load"),
        pytest.param(
            a_rank(UP, RunnerLoaded(), level=GroupLevel.WARM), Step.WARM_UP, id="all are loaded"
        ),
        pytest.param(
            a_rank(STARTING, attempt_over=True), Step.END_ATTEMPT, id="over before it reported"
        ),
        pytest.param(
            a_rank(UP, RunnerReady(), level=GroupLevel.WARM, leader_lost=True),
            Step.END_ATTEMPT,
            id="the leader is lost",
        ),
    ],
)
def test_each_situation_leads_to_its_next_step(runner: RunnerView, step: Step | None) -> None:
    actions = [] if step is None else [TakeStep(RUNNER, step)]
    assert planned(STATE, {RUNNER: runner}) == actions


def test_an_instance_of_this_node_gets_a_runner() -> None:
    assert planned(STATE, {}) == [AddRunner(INSTANCE, RUNNER)]


@pytest.mark.parametrize("state", RunnerState)
def test_a_runner_whose_instance_is_gone_is_stopped_once(state: RunnerState) -> None:
    actions = [] if state is RunnerState.STOPPING else [StopRunner(RUNNER)]
    assert planned(State(), {RUNNER: alone(state)}) == actions


def test_instances_of_other_nodes_are_ignored() -> None:
    foreign = an_instance(node_id=NodeId("node-other"))
    state = State(instances={foreign.instance_id: foreign})
    assert planned(state, {}) == []


def test_a_replaced_instance_stops_the_old_runner_and_adds_the_new() -> None:
    new = an_instance()
    state = State(instances={new.instance_id: new})
    runners = {RUNNER: alone(UP, RunnerReady())}
    assert planned(state, runners) == [StopRunner(RUNNER), AddRunner(new, runner_of(new))]


@pytest.mark.parametrize(
    ("status", "known", "actions"),
    [
        ("Cancelled", True, 1),
        ("Cancelled", False, 0),
        ("Running", True, 0),
        ("Complete", True, 0),
    ],
)
def test_a_task_cancelled_in_the_state_is_cancelled_here(
    status: TaskStatus, known: bool, actions: int
) -> None:
    task = a_request(InstanceId(INSTANCE.instance_id), "x")
    task = task.model_copy(update={"task_status": status})
    state = STATE.model_copy(update={"tasks": {task.task_id: task}})
    open_tasks = frozenset({task.task_id, TaskId("other")} if known else {TaskId("other")})
    runner = alone(UP, RunnerRunning(), uncancelled=open_tasks)
    expected = [CancelRequest(RUNNER, task.task_id)] * actions
    assert planned(state, {RUNNER: runner}) == expected


def test_one_runner_in_trouble_does_not_delay_another() -> None:
    other = an_instance()
    state = State(instances={INSTANCE.instance_id: INSTANCE, other.instance_id: other})
    runners = {RUNNER: a_rank(PREPARING, retry_at=NOW + 1), runner_of(other): alone(UP)}
    assert planned(state, runners) == [TakeStep(runner_of(other), Step.LOAD)]


def test_the_next_check_is_due_when_the_first_retry_is() -> None:
    def due(runner: RunnerView) -> float | None:
        return next_check({RUNNER: runner})

    assert next_check({}) is None
    assert due(alone(UP)) is None
    assert due(a_rank(RunnerState.WAITING, retry_at=NOW + 3)) is None
    assert due(a_rank(PREPARING, retry_at=NOW + 3)) == NOW + 3
    assert due(a_rank(PREPARING, retry_at=NOW + 3, busy=True)) is None
