"""What to do next: compares the state with the runners of this node, returns actions. Pure.

Requests are not part of it: they go straight to their runner.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from skulkd.wire.ids import NodeId, RunnerId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerConnected, RunnerIdle, RunnerLoaded, RunnerStatus
from skulkd.wire.state import State
from skulkd.worker.group_messages import GroupLevel
from skulkd.worker.lifecycle import RunnerState


class Step(Enum):
    """What the owner of a runner can do for it."""

    PREPARE = auto()
    """Get the files and check the memory, before an attempt."""
    JOIN = auto()
    """Reserve a port for the attempt."""
    START = auto()
    """Start the process."""
    CONNECT = auto()
    LOAD = auto()
    WARM_UP = auto()
    END_ATTEMPT = auto()
    """Kill the process: its attempt is over."""


@dataclass(frozen=True, slots=True)
class RunnerView:
    """A runner of this node at one moment."""

    state: RunnerState
    status: RunnerStatus
    rank: int = 0
    size: int = 1
    level: GroupLevel = GroupLevel.REST
    """How far its leader lets it go."""
    busy: bool = False
    """Preparing or joining right now."""
    retry_at: float = 0.0
    """When to prepare again after a failure."""
    attempt_over: bool = False
    leader_lost: bool = False
    requested: frozenset[Step] = frozenset()
    """Steps that the current process was asked to take; each is requested once."""
    uncancelled: frozenset[TaskId] = frozenset()
    """Open tasks that were not cancelled."""


@dataclass(frozen=True, slots=True)
class AddRunner:
    instance: Instance
    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class TakeStep:
    runner_id: RunnerId
    step: Step


@dataclass(frozen=True, slots=True)
class StopRunner:
    """Its instance is gone: end the process, then forget the runner."""

    runner_id: RunnerId


@dataclass(frozen=True, slots=True)
class CancelRequest:
    runner_id: RunnerId
    task_id: TaskId


Action = AddRunner | TakeStep | StopRunner | CancelRequest


def plan(
    state: State, node_id: NodeId, runners: Mapping[RunnerId, RunnerView], now: float
) -> list[Action]:
    """Everything that can be done now; at most one step for each runner."""
    wanted = {
        runner_id: instance
        for instance in state.instances.values()
        if (runner_id := instance.shard_assignments.node_to_runner.get(node_id)) is not None
    }
    actions: list[Action] = []
    for runner_id, runner in runners.items():
        if runner_id not in wanted:
            if runner.state is not RunnerState.STOPPING:
                actions.append(StopRunner(runner_id))
            continue
        actions += _cancels(state, runner_id, runner)
        step = None if runner.busy else _next_step(runner, now)
        if step is not None and step not in runner.requested:
            actions.append(TakeStep(runner_id, step))
    new = [runner_id for runner_id in wanted if runner_id not in runners]
    return actions + [AddRunner(wanted[runner_id], runner_id) for runner_id in new]


def next_check(runners: Mapping[RunnerId, RunnerView]) -> float | None:
    """When a step becomes due without any change."""
    waiting = [
        runner.retry_at
        for runner in runners.values()
        if runner.state is RunnerState.PREPARING and not runner.busy
    ]
    return min(waiting, default=None)


def _next_step(runner: RunnerView, now: float) -> Step | None:
    match runner.state:
        case RunnerState.PREPARING if now >= runner.retry_at:
            return Step.PREPARE
        case RunnerState.JOINING:
            return Step.JOIN
        case RunnerState.JOINED if runner.level >= GroupLevel.START:
            return Step.START
        case RunnerState.STARTING | RunnerState.UP if runner.attempt_over or runner.leader_lost:
            return Step.END_ATTEMPT
        case RunnerState.UP:
            return _step_of_process(runner)
        case _:
            return None


def _step_of_process(runner: RunnerView) -> Step | None:
    # The last rank connects to the others, so it waits until they listen.
    last = runner.rank == runner.size - 1
    may_connect = runner.level >= (GroupLevel.CONNECT if last else GroupLevel.START)
    match runner.status:
        case RunnerIdle() if runner.size == 1:
            return Step.LOAD
        case RunnerIdle() if may_connect:
            return Step.CONNECT
        case RunnerConnected():
            return Step.LOAD
        case RunnerLoaded() if runner.level >= GroupLevel.WARM:
            return Step.WARM_UP
        case _:
            return None


def _cancels(state: State, runner_id: RunnerId, runner: RunnerView) -> Iterator[CancelRequest]:
    for task_id in sorted(runner.uncancelled):
        task = state.tasks.get(task_id)
        if task is not None and task.task_status == "Cancelled":
            yield CancelRequest(runner_id, task_id)
