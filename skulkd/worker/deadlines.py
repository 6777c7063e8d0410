"""When silence becomes a failure, judged from outside the runner. Pure.

The runner watches itself first and says more. This is for one that cannot: stopped, frozen with
the interpreter's lock, or broken.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from skulkd.runner.protocol import RunnerOptions
from skulkd.wire.tasks import ConnectToGroup, LoadModel, Shutdown, StartWarmup
from skulkd.worker.options import Patience
from skulkd.worker.task_book import OpenTask


@dataclass(frozen=True, slots=True)
class Standing:
    """What counts; times are of one monotonic clock."""

    started_at: float
    heard_at: float
    reported: bool
    failed_at: float | None
    """When it said that it had failed or stopped."""
    open: tuple[OpenTask, ...]
    follows: bool = False
    """Whether another rank leads: only that one tells the progress of requests."""


@dataclass(frozen=True, slots=True)
class Deadline:
    at: float
    why: str


def next_deadline(standing: Standing, runner: RunnerOptions, patience: Patience) -> Deadline | None:
    """The first moment at which the runner has to be given up, if nothing changes until then."""
    if standing.failed_at is not None:
        limit = patience.last_words_s
        return Deadline(standing.failed_at + limit, "reported its end and did not end")
    if not standing.reported:
        limit = patience.first_report_s
        return Deadline(standing.started_at + limit, f"no report within {limit:g} s of its start")
    found = [
        deadline
        for entry in standing.open
        for deadline in _of_task(entry, standing, runner, patience.margin_s)
    ]
    return min(found, key=lambda deadline: deadline.at, default=None)


def _of_task(
    entry: OpenTask, standing: Standing, runner: RunnerOptions, margin_s: float
) -> Iterator[Deadline]:
    kind = type(entry.task).__name__
    if isinstance(entry.task, Shutdown):
        return  # who asked for it waits, and does not wait long
    step_s = runner.eval_deadline_s + margin_s
    if not entry.acknowledged:
        yield Deadline(entry.sent_at + step_s, f"{kind} not acknowledged within {step_s:g} s")
    if entry.cancelled_at is not None:
        yield Deadline(entry.cancelled_at + step_s, f"{kind} not cancelled within {step_s:g} s")
    if isinstance(entry.task, StartWarmup | ConnectToGroup):
        warming = isinstance(entry.task, StartWarmup)
        limit_s = (runner.warmup_deadline_s if warming else runner.connect_deadline_s) + margin_s
        yield Deadline(entry.sent_at + limit_s, f"{kind} not done within {limit_s:g} s")
        return
    if isinstance(entry.task, LoadModel):
        step_s = runner.layer_deadline_s + margin_s
    elif standing.follows:
        return
    yield Deadline(max(standing.heard_at, entry.sent_at) + step_s, f"no progress for {step_s:g} s")
