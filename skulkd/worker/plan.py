"""What to do next: look at the state and at this machine, return actions. Pure.

Requests are no part of it: they go straight to their runner.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerConnected, RunnerIdle, RunnerLoaded, RunnerStatus
from skulkd.wire.state import State
from skulkd.wire.tasks import ConnectToGroup, LoadModel, StartWarmup, Task
from skulkd.worker.group_messages import Level

Stage = Literal["starting", "up", "down", "stopping"]


@dataclass(frozen=True, slots=True)
class GroupView:
    """Where a runner stands that has other ranks beside it, and how far its leader lets it go."""

    rank: int
    size: int
    attempt: int
    level: Level
    process_attempt: int
    """To which attempt the process belongs, if there is one."""
    prepared: bool
    joined: bool
    """Whether it has a port for this attempt."""
    busy: bool = False
    """Preparing, joining or ending at the moment."""
    leader_lost: str | None = None


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
    group: GroupView | None = None


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
class Enlist:
    """There are other ranks: rank 0's node says when to start."""

    instance: Instance
    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get the files and look at the memory, before any rank starts."""

    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class Join:
    """Choose a port for the attempt."""

    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class Connect:
    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class EndAttempt:
    """Kill the process: the attempt it belongs to is over."""

    runner_id: RunnerId
    why: str | None
    """What this rank found itself; None when the leader said so."""


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
    """No more restarts until an operator asks for one: `skulkctl restart --instance`."""

    runner_id: RunnerId
    why: str


@dataclass(frozen=True, slots=True)
class CancelTask:
    runner_id: RunnerId
    task_id: TaskId


Step = Connect | Load | WarmUp
STEP_TASKS: Mapping[type[Step], type[ConnectToGroup | LoadModel | StartWarmup]] = {
    Connect: ConnectToGroup,
    Load: LoadModel,
    WarmUp: StartWarmup,
}
Action = (
    Enlist | Prepare | Join | StartRunner | Step | EndAttempt | StopRunner | GiveUp | CancelTask
)


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
    actions += [_begin(wanted[runner_id], runner_id) for runner_id in new]
    return actions


def next_look(local: Local) -> float | None:
    """When something becomes due without a change anywhere."""
    waiting = [
        runner.restart_at
        for runner in local.runners.values()
        if runner.stage == "down" and not runner.given_up and _is_timed(runner)
    ]
    return min(waiting, default=None)


def _is_timed(runner: LocalRunner) -> bool:
    """Whether this node decides about the next start."""
    return runner.group is None or not (runner.group.prepared or runner.group.busy)


def _begin(instance: Instance, runner_id: RunnerId) -> Action:
    alone = instance.shard_assignments.runner_to_shard[runner_id].world_size == 1
    return StartRunner(instance, runner_id) if alone else Enlist(instance, runner_id)


def _step(
    now: float, instance: Instance, runner_id: RunnerId, runner: LocalRunner
) -> Action | None:
    if runner.group is not None:
        return _group_step(now, instance, runner_id, runner, runner.group)
    if runner.stage == "down":
        return _after_failure(now, instance, runner_id, runner)
    if runner.stage != "up":
        return None
    if isinstance(runner.status, RunnerIdle) and LoadModel not in runner.asked:
        return Load(runner_id)
    if isinstance(runner.status, RunnerLoaded) and StartWarmup not in runner.asked:
        return WarmUp(runner_id)
    return None


def _group_step(
    now: float, instance: Instance, runner_id: RunnerId, runner: LocalRunner, group: GroupView
) -> Action | None:
    if group.busy or runner.stage == "stopping":
        return None
    if runner.stage == "down":
        return _before_start(now, instance, runner_id, runner, group)
    if group.level is Level.REST or group.attempt != group.process_attempt:
        return EndAttempt(runner_id, None)
    if group.leader_lost is not None:
        return EndAttempt(runner_id, group.leader_lost)
    return _climb(runner_id, runner, group) if runner.stage == "up" else None


def _before_start(
    now: float, instance: Instance, runner_id: RunnerId, runner: LocalRunner, group: GroupView
) -> Action | None:
    if not group.prepared:
        due = now >= runner.restart_at and not runner.given_up
        return Prepare(runner_id) if due else None
    if group.level >= Level.JOIN and not group.joined:
        return Join(runner_id)
    return StartRunner(instance, runner_id) if group.level >= Level.START else None


def _climb(runner_id: RunnerId, runner: LocalRunner, group: GroupView) -> Action | None:
    # The last rank dials first, so it waits until the others listen.
    last = group.rank == group.size - 1
    may_connect = group.level >= (Level.CONNECT if last else Level.START)
    if isinstance(runner.status, RunnerIdle) and may_connect:
        return None if ConnectToGroup in runner.asked else Connect(runner_id)
    if isinstance(runner.status, RunnerConnected):
        return None if LoadModel in runner.asked else Load(runner_id)
    if isinstance(runner.status, RunnerLoaded) and group.level >= Level.WARM:
        return None if StartWarmup in runner.asked else WarmUp(runner_id)
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
