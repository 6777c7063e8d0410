"""Heuristic warnings over placements, supervisors and state. Pure.

W1  the master is outside a placement
W2  W1, and a rank of that placement is warming up
W3  a live runner has work, the state has none for its instance
W4  a runner works on a task that the state no longer tracks
W5  a runner works on a task that the state says is over
W6  a live task that the placement does not give to this runner
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from skulkd.wire.diagnostics import (
    InstancePlacementDiagnostics,
    RunnerSupervisorDiagnostics,
    RunnerTaskDiagnostics,
)
from skulkd.wire.ids import InstanceId
from skulkd.wire.state import State

LIVE = frozenset({"Pending", "Running"})


def short_id(identifier: str) -> str:
    """First eight and last four characters of a long id."""
    return identifier if len(identifier) <= 12 else f"{identifier[:8]}…{identifier[-4:]}"


def master_warnings(placement: InstancePlacementDiagnostics) -> Iterator[str]:
    """W1 and W2 of one placement."""
    if placement.master_node_id is None or placement.master_is_placement_node:
        return
    instance = short_id(placement.instance_id)
    master = short_id(placement.master_node_id)
    yield f"master {master} is not a placement node of instance {instance}"
    for runner in placement.runners:
        if runner.status_kind == "RunnerWarmingUp":
            yield (
                f"runner {runner.runner_id} is warming up while master {master} "
                f"is not a placement node of instance {instance}"
            )


def supervisor_warnings(
    supervisors: Iterable[RunnerSupervisorDiagnostics],
    state: State,
    placements: Sequence[InstancePlacementDiagnostics],
) -> Iterator[tuple[InstanceId, str]]:
    """W3 to W6, each with the instance it belongs to."""
    by_instance = {placement.instance_id: placement for placement in placements}
    for supervisor in supervisors:
        placement = by_instance.get(supervisor.instance_id)
        for text in _of_supervisor(supervisor, state, placement):
            yield supervisor.instance_id, text


def _of_supervisor(
    supervisor: RunnerSupervisorDiagnostics,
    state: State,
    placement: InstancePlacementDiagnostics | None,
) -> Iterator[str]:
    instance_id = supervisor.instance_id
    tracked = any(task.instance_id == instance_id for task in state.tasks.values())
    busy = len(supervisor.in_progress_tasks)
    if supervisor.process_alive and busy and not tracked:
        yield (
            f"runner {short_id(supervisor.runner_id)} has {busy} tasks in progress, "
            f"but cluster state has none for instance {short_id(instance_id)}"
        )
    for task in supervisor.in_progress_tasks:
        text = _of_task(supervisor, task, state, placement)
        if text is not None:
            yield text


def _of_task(
    supervisor: RunnerSupervisorDiagnostics,
    task: RunnerTaskDiagnostics,
    state: State,
    placement: InstancePlacementDiagnostics | None,
) -> str | None:
    label = f"{task.task_kind}:{short_id(task.task_id)}"
    claim = f"runner {short_id(supervisor.runner_id)} still reports {label} in progress"
    known = state.tasks.get(task.task_id)
    if known is None:
        return f"{claim}, but cluster state no longer tracks it"
    if known.task_status not in LIVE:
        return f"{claim}, but cluster state says {known.task_status}"
    if placement is None:
        return None
    given = any(
        entry.task_id == task.task_id
        for runner in placement.runners
        if runner.runner_id == supervisor.runner_id
        for entry in runner.tasks
    )
    return None if given else f"{claim}, but its placement does not give it to this runner"
