"""What to do next: look at the state and at this machine, return actions. Pure.

Requests are no part of it: they go straight to their runner.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerIdle, RunnerLoaded, RunnerStatus
from skulkd.wire.state import State
from skulkd.wire.tasks import LoadModel, StartWarmup, Task

Stage = Literal["starting", "up", "down", "stopping"]


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """A runner of this node. `up` begins with its first report; `down` is after a failure."""

    instance_id: InstanceId
    stage: Stage
    status: RunnerStatus
    asked: frozenset[type[Task]] = frozenset()
    """What the present process was already told to do; nothing is asked twice."""
    uncancelled: frozenset[TaskId] = frozenset()
    """Open tasks that nobody has asked it to cancel."""
    restart_helps: bool = True
    circuit_open: bool = False
    restart_at: float = 0.0
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Local:
    """This machine at the moment `now` (monotonic seconds)."""

    node_id: NodeId
    now: float
    runners: Mapping[RunnerId, LocalRunner]


@dataclass(frozen=True, slots=True)
class StartRunner:
    instance: Instance
    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class Load:
    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class WarmUp:
    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class StopRunner:
    """Its instance is gone; with the process, what was known of it goes too."""

    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No more restarts until an operator acts."""

    runner_id: RunnerId
    why: str


@dataclass(frozen=True, slots=True)
class CancelTask:
    runner_id: RunnerId
    task_id: TaskId


Action = StartRunner | Load | WarmUp | StopRunner | GiveUp | CancelTask


def plan(state: State, local: Local) -> list[Action]:
    """Everything that can be done now; at most one step for each runner, besides cancelling."""
    wanted = {
        runner_id: instance
        for instance in state.instances.values()
        if (runner_id := instance.shard_assignments.node_to_runner.get(local.node_id)) is not None
    }
    actions: list[Action] = []
    for runner_id, runner in local.runners.items():
        if runner_id not in wanted:
            if runner.stage != "stopping":
                actions.append(StopRunner(runner_id))
            continue
        actions += _cancels(state, runner_id, runner)
        if (step := _step(local.now, wanted[runner_id], runner_id, runner)) is not None:
            actions.append(step)
    new = [runner_id for runner_id in wanted if runner_id not in local.runners]
    actions += [StartRunner(wanted[runner_id], runner_id) for runner_id in new]
    return actions


def next_look(local: Local) -> float | None:
    """When something becomes due without a change anywhere."""
    waiting = [
        runner.restart_at
        for runner in local.runners.values()
        if runner.stage == "down" and not runner.given_up
    ]
    return min(waiting, default=None)


def _step(
    now: float, instance: Instance, runner_id: RunnerId, runner: LocalRunner
) -> Action | None:
    if runner.stage == "down":
        return _after_failure(now, instance, runner_id, runner)
    if runner.stage != "up":
        return None
    if isinstance(runner.status, RunnerIdle) and LoadModel not in runner.asked:
        return Load(runner_id)
    if isinstance(runner.status, RunnerLoaded) and StartWarmup not in runner.asked:
        return WarmUp(runner_id)
    return None


def _after_failure(
    now: float, instance: Instance, runner_id: RunnerId, runner: LocalRunner
) -> Action | None:
    if runner.given_up:
        return None
    if not runner.restart_helps:
        return GiveUp(runner_id, "another start would not help")
    if runner.circuit_open:
        return GiveUp(runner_id, "it crashed too often")
    return StartRunner(instance, runner_id) if now >= runner.restart_at else None


def _cancels(state: State, runner_id: RunnerId, runner: LocalRunner) -> Iterator[CancelTask]:
    for task_id in sorted(runner.uncancelled):
        task = state.tasks.get(task_id)
        if task is not None and task.task_status == "Cancelled":
            yield CancelTask(runner_id, task_id)
