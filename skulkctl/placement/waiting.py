"""Waiting until one instance is ready or gone, with progress on stderr.

Ends early at the first thing that will not get better by waiting.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skulkctl.errors import CliError, DeadlinePassed
from skulkctl.output.progress import Part, Progress
from skulkctl.output.units import age_text
from skulkctl.placement.downloads import ONGOING
from skulkctl.placement.instances import (
    InstanceItem,
    RunnerItem,
    failures,
    instance_items,
    runner_text,
    short_instance,
)
from skulkctl.placement.moves import move_line, with_moves
from skulkctl.placement.plans import place_again
from skulkctl.polling import LOOK_S, poll_until
from skulkd.wire.runners import (
    GIVEN_UP,
    MEMORY_GUARD,
    STAGING_FAILED,
    STORE_FAILED,
    failure_codes,
)

if TYPE_CHECKING:
    from skulkctl.cli import Invocation
    from skulkctl.daemon.state import ClusterState

ENDS = ("failed", "deleted")
WAIT_S = 600.0
PATIENCE_S = 10.0
# So long the master gets to move an instance whose node turned out to be the obstacle; when it
# cannot, it says so, and the wait ends.
MOVE_S = 30.0
_MOVABLE = frozenset({MEMORY_GUARD, STAGING_FAILED})
_FINAL = _MOVABLE | {GIVEN_UP, STORE_FAILED}


@dataclass(frozen=True)
class Goal:
    """What to wait for, and what ends the wait as a failure."""

    instance_id: str
    model_id: str
    wanted: str = "ready"
    fail_on: frozenset[str] = frozenset(ENDS)
    patient: bool = False
    """Whether a failure counts only when the runner is not started again by itself."""

    @property
    def name(self) -> str:
        return f"{self.model_id} ({short_instance(self.instance_id)})"


def parse_ends(typed: str) -> frozenset[str]:
    """`failed,deleted` or `none`. Raises ValueError."""
    words = frozenset(word.strip() for word in typed.split(",") if word.strip() != "none")
    unknown = sorted(words.difference(ENDS))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(ENDS)}, or none")
    return words


def wait_for(call: Invocation, goal: Goal, patience_s: float = PATIENCE_S) -> InstanceItem | None:
    """The instance as it was when the goal was reached; None when it is gone.

    `--timeout` limits the whole wait. Raises DeadlinePassed, or CliError when the goal cannot
    be reached any more or no daemon has answered for `patience_s`.
    """
    limit_s = call.timeout_s(WAIT_S)
    work = "starting" if goal.wanted == "ready" else "stopping"
    call.if_interrupted = f"{goal.name} continues {work} in the cluster"
    with Progress(call.quiet) as line:
        watch = _Watch(call, goal, line)
        found = poll_until(
            watch.fetch, watch.check, limit_s, patience_s=patience_s, on_error=watch.show_no_answer
        )
    call.if_interrupted = None
    if found is None:
        raise _too_late(goal, watch.item, limit_s)
    return watch.item


class _Watch:
    """Checks one instance; remembers which moves were printed."""

    def __init__(self, call: Invocation, goal: Goal, line: Progress) -> None:
        self._call, self._goal, self._line = call, goal, line
        self._moves = _Moves(call, line)
        self._grace = _Grace()
        self.item: InstanceItem | None = None

    def fetch(self, left_s: float) -> ClusterState:
        return self._call.daemon.within(min(LOOK_S, left_s)).state()

    def check(self, state: ClusterState) -> bool | None:
        """True when the goal is reached. Raises CliError when it cannot be any more."""
        items = instance_items(state)
        item = next((item for item in items if item["id"] == self._goal.instance_id), None)
        item = self.item = self._moves.seen(item)
        if _is_reached(self._goal, item):
            return True
        if not self._grace.lasts(item) or (item and item.get("notMoved")):
            _check(self._call, self._goal, item)
        self._line.show(*_progress(self._goal, item))
        return None

    def show_no_answer(self, error: CliError) -> None:
        self._line.show("silent", f"no answer: {'; '.join(error.why) or error.what}")


def _is_reached(goal: Goal, item: InstanceItem | None) -> bool:
    if goal.wanted == "deleted":
        return item is None
    return item is not None and item["status"] == "ready"


class _Moves:
    """Prints every move of the instance once; fetches its record only if one may have happened."""

    def __init__(self, call: Invocation, line: Progress) -> None:
        self._call, self._line = call, line
        self._runners: list[str] | None = None
        self._told = 0

    def seen(self, item: InstanceItem | None) -> InstanceItem | None:
        """The instance with what its record says, as far as that was asked for."""
        if item is None:
            return None
        runners = [runner["id"] for runner in item["runners"]]
        if runners == self._runners and not failures(item):
            return item
        self._runners = runners
        answer = self._call.daemon.placements()
        rows = [row for row in answer.placements if row.instance_id == item["id"]]
        moves = rows[0].record.moves if rows else []
        for move in moves[self._told :]:
            self._line.clear()
            self._call.messages.note(f"moved {move_line(move)}")
        self._told = len(moves)
        return with_moves([item], answer)[0]


class _Grace:
    """Patience with failures that the master repairs by moving the instance elsewhere."""

    def __init__(self) -> None:
        self._until: float | None = None

    def lasts(self, item: InstanceItem | None) -> bool:
        """Whether what is wrong may be gone in a moment; never for long."""
        broken = failures(item) if item is not None else []
        if not any(_codes(runner) & _MOVABLE for runner in broken):
            self._until = None
            return False
        now = time.monotonic()
        self._until = now + MOVE_S if self._until is None else self._until
        return now < self._until


def _codes(runner: RunnerItem) -> frozenset[str]:
    """Why a rank of `failures` is broken."""
    if runner["status"] is None:
        return frozenset({STAGING_FAILED})
    return failure_codes(runner["error"] or "")


def _check(call: Invocation, goal: Goal, item: InstanceItem | None) -> None:
    """Raises CliError when an end has come that the user wants to hear of."""
    if item is None:
        if "deleted" in goal.fail_on:
            raise CliError(
                f"{goal.name} was deleted before it was {goal.wanted}", hints=["skulkctl instances"]
            )
        return
    broken = failures(item) if "failed" in goal.fail_on else []
    if goal.patient:
        broken = [runner for runner in broken if _codes(runner) & _FINAL]
    if broken:
        raise _failed(call, goal, broken[0], item)


def _failed(call: Invocation, goal: Goal, runner: RunnerItem, item: InstanceItem) -> CliError:
    where = f"rank {runner['rank']} on {runner['node']} (runner {runner['id']})"
    why = [f"{where}: {runner['error']}"]
    phase = _last_phase(call, runner)
    if phase:
        why.append(f"last phase: {phase}")
    if stays := item.get("notMoved"):
        why.append(f"not moved elsewhere: {stays}")
    short = short_instance(goal.instance_id)
    again = f"skulkctl restart --instance {short} --wait"
    if not call.daemon.can_restart_runners():
        again = place_again(goal.instance_id, goal.model_id)
    hints = [
        f"skulkctl diagnose {runner['node']}",
        f"after fixing it, run:  {again}",
        f"unload it:  skulkctl delete {short}",
    ]
    return CliError(f"{goal.name} did not become {goal.wanted}", *why, hints=hints)


def _last_phase(call: Invocation, runner: RunnerItem) -> str | None:
    """What the runner did last, as its node's supervisor recorded it; None when nobody says."""
    try:
        diagnostics = call.daemon.within(LOOK_S).node_diagnostics(runner["nodeId"])
    except CliError as error:
        call.messages.detail(error.what)
        return None
    for record in diagnostics.supervisor_runners:
        if record.runner_id == runner["id"]:
            detail = record.phase_detail
            return f"{record.phase} ({detail})" if detail else record.phase
    return None


def _progress(goal: Goal, item: InstanceItem | None) -> tuple[str, str, list[Part], str]:
    """Stage, text, a bar for each node, and their title."""
    if item is None:
        return "unseen", f"{goal.name}: not in the cluster's state yet", [], ""
    if goal.wanted == "deleted":
        return "deleting", f"{goal.name}: waiting for its {item['totalRunners']} runners", [], ""
    runners = item["runners"]
    ranks = [f"{runner['node']} {runner_text(runner)}" for runner in runners]
    stage = " ".join(str(runner["status"]) for runner in runners)
    shape = f" ({item['sharding'].lower()})" if item["sharding"] and len(runners) > 1 else ""
    title = f"Starting {goal.name} on {', '.join(item['nodes'])}{shape}"
    return stage, f"{', '.join(ranks)}  {goal.name}", [_part(runner) for runner in runners], title


def _part(runner: RunnerItem) -> Part:
    """Bytes copied while its files are on their way, layers while it loads them."""
    copy = runner["staging"]
    if copy is not None and copy["status"] == ONGOING:
        return Part(runner["node"], "staging", copy["doneBytes"], copy["totalBytes"])
    doing = runner_text(runner).partition(" ")[0] if runner["layersToLoad"] else runner_text(runner)
    return Part(runner["node"], doing, runner["layersLoaded"], runner["layersToLoad"], "layers")


def _too_late(goal: Goal, item: InstanceItem | None, limit_s: float) -> DeadlinePassed:
    status = f"status {item['status']}" if item else "not in the cluster's state"
    status = f"{status}: {item['detail']}" if item and item["detail"] else status
    return DeadlinePassed(
        f"{goal.name} is not {goal.wanted} yet",
        f"waited {age_text(limit_s)}; {status}; it continues in the cluster",
        hints=[
            f"wait longer:  skulkctl wait {short_instance(goal.instance_id)} "
            f"--for {goal.wanted} --timeout 30m"
        ],
    )
