"""Heuristic warnings over placements, supervisors and state. Pure.

W1  the master is outside a placement
W2  W1, and a rank of that placement is warming up
W3  a live runner has work, the state has none for its instance
W4  a runner works on a task that the state no longer tracks
W5  a runner works on a task that the state says is over
W6  a live task that the placement does not give to this runner
W8  a runner has been in one phase far longer than it usually is
W9  ranks of one placement are at different points and do not get closer

W7, leaked memory, is a reading of the machine and lives there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from skulkd.wire.diagnostics import (
    InstancePlacementDiagnostics,
    RunnerSupervisorDiagnostics,
    RunnerTaskDiagnostics,
)
from skulkd.wire.ids import InstanceId
from skulkd.wire.state import State

LIVE = frozenset({"Pending", "Running"})
RESTING = frozenset({"created", "idle", "completion", "error", "shutdown_cleanup"})
LONG_S = 30.0
"""No phase with work in it is worth a warning before this."""


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


def phase_warnings(
    supervisors: Iterable[RunnerSupervisorDiagnostics],
) -> Iterator[tuple[InstanceId, str]]:
    """W8, each with the instance it belongs to."""
    for supervisor in supervisors:
        usual_s = _usual_s(supervisor)
        now_s = supervisor.seconds_in_phase
        busy = supervisor.process_alive and supervisor.phase not in RESTING
        if busy and now_s > max(LONG_S, 3 * usual_s):
            before = f", never longer than {usual_s:.0f} s before" if usual_s else ""
            yield (
                supervisor.instance_id,
                f"runner {short_id(supervisor.runner_id)} has been in {supervisor.phase} "
                f"for {now_s:.0f} s{before}",
            )


def _usual_s(supervisor: RunnerSupervisorDiagnostics) -> float:
    """The longest stay in the present phase that the recorder remembers, before this one."""
    longest, since, phase = 0.0, None, None
    for entry in supervisor.flight_recorder:
        if entry.phase == phase:
            continue
        at = datetime.fromisoformat(entry.at)
        if since is not None and phase == supervisor.phase:
            longest = max(longest, (at - since).total_seconds())
        since, phase = at, entry.phase
    return longest


def disagreements(
    supervisors: Iterable[RunnerSupervisorDiagnostics],
) -> Iterator[tuple[InstanceId, str]]:
    """W9 over the records of all nodes, each with the instance it belongs to."""
    groups: dict[InstanceId, list[RunnerSupervisorDiagnostics]] = {}
    for supervisor in supervisors:
        groups.setdefault(supervisor.instance_id, []).append(supervisor)
    for instance_id, ranks in groups.items():
        places = {(rank.status_kind, rank.phase) for rank in ranks}
        still_s = min(rank.seconds_in_phase for rank in ranks)
        if len(places) < 2 or still_s < LONG_S:
            continue
        told = ", ".join(
            f"rank {rank.device_rank} {rank.status_kind} in {rank.phase}"
            for rank in sorted(ranks, key=lambda rank: rank.device_rank)
        )
        yield (
            instance_id,
            f"the ranks of instance {short_id(instance_id)} disagree for {still_s:.0f} s: {told}",
        )
