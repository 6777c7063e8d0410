"""When silence of a runner counts as a failure. Pure.

The runner has deadlines of its own, which are shorter and explain more. These are for a runner
that cannot enforce them: stopped, frozen while holding the interpreter lock, or broken.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from skulkd.runner.protocol import RunnerOptions
from skulkd.wire.tasks import ConnectToGroup, LoadModel, Shutdown, StartWarmup
from skulkd.worker.options import RunnerTimeouts
from skulkd.worker.task_table import OpenTask


@dataclass(frozen=True, slots=True)
class RunnerActivity:
    """What the deadlines depend on; times are of one monotonic clock."""

    started_at: float
    heard_at: float
    reported: bool
    failed_at: float | None
    """When it reported that it had failed or stopped."""
    open: tuple[OpenTask, ...]
    follows: bool = False
    """Whether it is not rank 0: only rank 0 reports the progress of requests."""


@dataclass(frozen=True, slots=True)
class RunnerDeadline:
    at: float
    why: str


def next_deadline(
    activity: RunnerActivity, runner: RunnerOptions, timeouts: RunnerTimeouts
) -> RunnerDeadline | None:
    """When the runner has to be killed if nothing changes until then."""
    if activity.failed_at is not None:
        limit = timeouts.exit_s
        return RunnerDeadline(activity.failed_at + limit, "reported its end and did not end")
    if not activity.reported:
        limit = timeouts.first_report_s
        return RunnerDeadline(
            activity.started_at + limit, f"no report within {limit:g} s of its start"
        )
    found = [
        deadline
        for entry in activity.open
        for deadline in _of_task(entry, activity, runner, timeouts.margin_s)
    ]
    return min(found, key=lambda deadline: deadline.at, default=None)


def _of_task(
    entry: OpenTask, activity: RunnerActivity, runner: RunnerOptions, margin_s: float
) -> Iterator[RunnerDeadline]:
    kind = type(entry.task).__name__
    if isinstance(entry.task, Shutdown):
        return  # stopping has its own timeouts
    step_s = runner.eval_deadline_s + margin_s
    if not entry.acknowledged:
        yield RunnerDeadline(entry.sent_at + step_s, f"{kind} not acknowledged within {step_s:g} s")
    if entry.cancelled_at is not None:
        yield RunnerDeadline(
            entry.cancelled_at + step_s, f"{kind} not cancelled within {step_s:g} s"
        )
    if isinstance(entry.task, StartWarmup | ConnectToGroup):
        warming = isinstance(entry.task, StartWarmup)
        limit_s = (runner.warmup_deadline_s if warming else runner.connect_deadline_s) + margin_s
        yield RunnerDeadline(entry.sent_at + limit_s, f"{kind} not done within {limit_s:g} s")
        return
    if isinstance(entry.task, LoadModel):
        step_s = runner.layer_deadline_s + margin_s
    elif activity.follows:
        return
    yield RunnerDeadline(
        max(activity.heard_at, entry.sent_at) + step_s, f"no progress for {step_s:g} s"
    )
