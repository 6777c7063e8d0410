"""The plan as a table: what the state and this machine lead to."""

from __future__ import annotations

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
from skulkd.wire.tasks import ConnectToGroup, LoadModel, StartWarmup, TaskStatus
from skulkd.worker.group_messages import Level
from skulkd.worker.plan import (
    Action,
    CancelTask,
    Connect,
    EndAttempt,
    Enlist,
    GiveUp,
    GroupView,
    Join,
    Load,
    Local,
    LocalRunner,
    Prepare,
    StartRunner,
    StopRunner,
    WarmUp,
    next_look,
    plan,
)
from tests.worker.group_rig import a_group
from tests.worker.rig import NODE, a_request, an_instance

NOW = 100.0


def runner_of(instance: Instance) -> RunnerId:
    (runner_id,) = instance.shard_assignments.runner_to_shard
    return runner_id


INSTANCE = an_instance()
RUNNER = runner_of(INSTANCE)
STATE = State(instances={INSTANCE.instance_id: INSTANCE})


def local(runner: LocalRunner | None = None) -> Local:
    return Local(NODE, NOW, {} if runner is None else {RUNNER: runner})


def a_runner(stage: Any = "up", status: RunnerStatus | None = None, **facts: Any) -> LocalRunner:
    return LocalRunner(INSTANCE.instance_id, stage, status or RunnerIdle(), **facts)


def down(**facts: Any) -> LocalRunner:
    return a_runner("down", RunnerFailed(error_message="x"), **facts)


START = StartRunner(INSTANCE, RUNNER)


@pytest.mark.parametrize(
    ("runner", "actions"),
    [
        pytest.param(None, [START], id="an instance without a runner"),
        pytest.param(a_runner("starting"), [], id="not reported yet"),
        pytest.param(a_runner(), [Load(RUNNER)], id="idle"),
        pytest.param(a_runner(asked=frozenset({LoadModel})), [], id="told to load"),
        pytest.param(a_runner(status=RunnerLoading()), [], id="loading"),
        pytest.param(
            a_runner(status=RunnerLoaded(), asked=frozenset({LoadModel})),
            [WarmUp(RUNNER)],
            id="loaded",
        ),
        pytest.param(
            a_runner(status=RunnerLoaded(), asked=frozenset({LoadModel, StartWarmup})),
            [],
            id="told to warm up",
        ),
        pytest.param(a_runner(status=RunnerWarmingUp()), [], id="warming up"),
        pytest.param(a_runner(status=RunnerReady()), [], id="ready"),
        pytest.param(a_runner(status=RunnerRunning()), [], id="running"),
        pytest.param(a_runner(status=RunnerFailed()), [], id="failed and not yet gone"),
        pytest.param(a_runner("stopping", RunnerReady()), [], id="stopping"),
        pytest.param(down(restart_at=NOW + 1), [], id="waiting after a crash"),
        pytest.param(down(restart_at=NOW), [START], id="waited long enough"),
        pytest.param(
            down(circuit_open=True), [GiveUp(RUNNER, "it crashed too often")], id="circuit open"
        ),
        pytest.param(
            down(restart_helps=False),
            [GiveUp(RUNNER, "another start would not help")],
            id="wedged",
        ),
        pytest.param(down(given_up=True, restart_helps=False), [], id="given up"),
        pytest.param(down(given_up=True, circuit_open=True), [], id="given up, circuit open"),
    ],
)
def test_each_situation_leads_to_its_next_step(
    runner: LocalRunner | None, actions: list[Action]
) -> None:
    assert plan(STATE, local(runner)) == actions


@pytest.mark.parametrize(
    ("stage", "actions"),
    [
        ("starting", [StopRunner(RUNNER)]),
        ("up", [StopRunner(RUNNER)]),
        ("down", [StopRunner(RUNNER)]),
        ("stopping", []),
    ],
)
def test_a_runner_whose_instance_is_gone_is_stopped_once(stage: str, actions: list[Action]) -> None:
    assert plan(State(), local(a_runner(stage, given_up=True))) == actions


def test_instances_of_other_nodes_are_none_of_our_business() -> None:
    foreign = an_instance(node_id=NodeId("node-other"))
    state = State(instances={foreign.instance_id: foreign})
    assert plan(state, local()) == []


def test_a_replaced_instance_stops_the_old_runner_and_starts_the_new() -> None:
    new = an_instance()
    state = State(instances={new.instance_id: new})
    runner = a_runner(status=RunnerReady())
    assert plan(state, local(runner)) == [StopRunner(RUNNER), StartRunner(new, runner_of(new))]


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
    runner = a_runner(status=RunnerRunning(), uncancelled=open_tasks)
    expected = [CancelTask(RUNNER, task.task_id)] * actions
    assert plan(state, local(runner)) == expected


def test_one_runner_in_trouble_does_not_hold_up_another() -> None:
    other = an_instance()
    state = State(instances={INSTANCE.instance_id: INSTANCE, other.instance_id: other})
    runners = {
        RUNNER: down(restart_at=NOW + 1),
        runner_of(other): LocalRunner(other.instance_id, "up", RunnerIdle()),
    }
    assert plan(state, Local(NODE, NOW, runners)) == [Load(runner_of(other))]


GROUP = a_group([NODE, NodeId("node-other")])
RANK_0 = RunnerId("runner-0")


def a_rank(
    stage: Any = "down", status: RunnerStatus | None = None, asked: Any = (), **facts: Any
) -> LocalRunner:
    known = {"attempt": 2, "level": Level.REST, "process_attempt": 2, "prepared": True}
    own = {key: facts.pop(key) for key in ("restart_at", "given_up") if key in facts}
    view = GroupView(**{"rank": 0, "size": 2, "joined": False, **known, **facts})
    return LocalRunner(
        GROUP.instance_id, stage, status or RunnerIdle(), frozenset(asked), group=view, **own
    )


JOINED = {"level": Level.START, "joined": True}


@pytest.mark.parametrize(
    ("rank", "actions"),
    [
        pytest.param(None, [Enlist(GROUP, RANK_0)], id="an instance with several ranks"),
        pytest.param(a_rank(prepared=False), [Prepare(RANK_0)], id="not prepared"),
        pytest.param(a_rank(prepared=False, busy=True), [], id="preparing"),
        pytest.param(a_rank(prepared=False, restart_at=NOW + 1), [], id="prepared again later"),
        pytest.param(a_rank(prepared=False, given_up=True), [], id="cannot take part"),
        pytest.param(a_rank(), [], id="prepared, and not called"),
        pytest.param(a_rank(level=Level.JOIN), [Join(RANK_0)], id="called"),
        pytest.param(a_rank(level=Level.JOIN, joined=True), [], id="waiting for the others"),
        pytest.param(a_rank(**JOINED), [StartRunner(GROUP, RANK_0)], id="all have joined"),
        pytest.param(a_rank("starting", **JOINED), [], id="not reported yet"),
        pytest.param(a_rank("up", **JOINED), [Connect(RANK_0)], id="idle"),
        pytest.param(a_rank("up", rank=1, **JOINED), [], id="the last waits for the others"),
        pytest.param(
            a_rank("up", rank=1, level=Level.CONNECT), [Connect(RANK_0)], id="the last connects"
        ),
        pytest.param(a_rank("up", asked=[ConnectToGroup], **JOINED), [], id="told to connect"),
        pytest.param(a_rank("up", RunnerConnected(), **JOINED), [Load(RANK_0)], id="connected"),
        pytest.param(a_rank("up", RunnerLoaded(), **JOINED), [], id="others still load"),
        pytest.param(
            a_rank("up", RunnerLoaded(), level=Level.WARM), [WarmUp(RANK_0)], id="all are loaded"
        ),
        pytest.param(a_rank("up", RunnerReady()), [EndAttempt(RANK_0, None)], id="told to rest"),
        pytest.param(a_rank("starting"), [EndAttempt(RANK_0, None)], id="told to rest early"),
        pytest.param(
            a_rank("up", attempt=3, **JOINED), [EndAttempt(RANK_0, None)], id="of an old attempt"
        ),
        pytest.param(
            a_rank("up", RunnerReady(), level=Level.WARM, leader_lost="it left"),
            [EndAttempt(RANK_0, "it left")],
            id="the leader is lost",
        ),
        pytest.param(a_rank("stopping", **JOINED), [], id="stopping"),
    ],
)
def test_a_rank_goes_as_far_as_its_leader_says(
    rank: LocalRunner | None, actions: list[Action]
) -> None:
    state = State(instances={GROUP.instance_id: GROUP})
    runners = {} if rank is None else {RANK_0: rank}
    assert plan(state, Local(NODE, NOW, runners)) == actions


def test_a_rank_that_its_leader_starts_is_not_timed_here() -> None:
    assert next_look(Local(NODE, NOW, {RANK_0: a_rank()})) is None
    waiting = a_rank(prepared=False, restart_at=NOW + 3)
    assert next_look(Local(NODE, NOW, {RANK_0: waiting})) == NOW + 3


def test_the_next_look_is_due_when_the_first_restart_is() -> None:
    assert next_look(local()) is None
    assert next_look(local(a_runner())) is None
    assert next_look(local(down(restart_at=NOW + 3))) == NOW + 3
    assert next_look(local(down(restart_at=NOW + 3, given_up=True))) is None
