"""Watching one instance until it is ready or gone, with progress on stderr.

Ends early at the first thing that will not get better by waiting.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from skulkctl.errors import CliError, DeadlinePassed, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.fetch import fetch_placements, is_stock
from skulkctl.progress import ProgressLine
from skulkctl.units import age_text
from skulkctl.views.instances import failures, instance_items, runner_text, short_instance
from skulkctl.views.moves import move_line, with_moves
from skulkctl.views.placement import place_again
from skulkctl.views.read import Document, dig, integer, mapping, sequence, text

if TYPE_CHECKING:
    from skulkctl.fetch import Snapshot
    from skulkctl.invocation import Invocation

GOALS = ("ready", "deleted")
ENDS = ("failed", "deleted")
WAIT_S = 600.0
PATIENCE_S = 10.0
_POLL_S = 0.25
_LOOK_S = 5.0
# So long the master gets to move an instance whose node turned out to be the obstacle; when it
# cannot, it says so, and nobody waits.
MOVE_S = 30.0
_GIVEN_UP = "Not started again: "
_MOVABLE = ("memory-guard: ", "staging-failed: ", "staging failed: ")
_FINAL = (_GIVEN_UP, "store-failed: ", *_MOVABLE)


@dataclass(frozen=True)
class Goal:
    """What to wait for, and what ends the wait as a failure."""

    instance_id: str
    model_id: str
    wanted: str = "ready"
    fail_on: frozenset[str] = frozenset(ENDS)
    patient: bool = False
    """Whether a failure counts only when it is said that nothing is started again."""

    @property
    def name(self) -> str:
        return f"{self.model_id} ({short_instance(self.instance_id)})"


def read_fail_on(typed: str | None, wanted: str) -> frozenset[str]:
    """`failed,deleted` or `none`; without it everything that makes the goal impossible."""
    if typed is None:
        return frozenset(ENDS if wanted == "ready" else ())
    words = frozenset(word.strip() for word in typed.split(",") if word.strip() != "none")
    unknown = sorted(words.difference(ENDS))
    if unknown:
        raise UsageMistake(
            f"--fail-on {unknown[0]}: choose from {', '.join(ENDS)}, or none",
        )
    return words


def wait_for(call: Invocation, goal: Goal, patience_s: float = PATIENCE_S) -> Document | None:
    """The instance as it was when the goal was reached; None when it is gone.

    `--timeout` limits the whole wait. Raises DeadlinePassed, or CliError when the goal cannot
    be reached any more or nobody has answered for `patience_s`.
    """
    limit_s = call.timeout_s(WAIT_S)
    with ProgressLine(call.quiet) as line:
        try:
            return _watch(call, goal, line, limit_s, patience_s)
        except KeyboardInterrupt:
            line.clear()
            work = "starting" if goal.wanted == "ready" else "stopping"
            call.talk.warning(f"interrupted; {goal.name} goes on {work} in the cluster")
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def _watch(
    call: Invocation, goal: Goal, line: ProgressLine, limit_s: float, patience_s: float
) -> Document | None:
    heard_at = time.monotonic()
    end = heard_at + limit_s
    grace, moves = _Grace(), _Moves(call)
    item: Document | None = None
    while (left_s := end - time.monotonic()) > 0:
        try:
            snapshot = _look(call, min(_LOOK_S, left_s))
        except CliError as error:
            if time.monotonic() - heard_at > patience_s:
                raise
            line.show("silent", f"no answer: {'; '.join(error.why) or error.what}")
        else:
            heard_at = time.monotonic()
            item = moves.seen(_find(snapshot, goal.instance_id), line)
            if _is_reached(goal, item):
                return item
            if not grace.lasts(item) or text(item, "notMoved"):
                _check(call, goal, item)
            line.show(*_progress(goal, item))
        time.sleep(min(_POLL_S, left_s))
    raise _too_late(goal, item, limit_s)


def _look(call: Invocation, timeout_s: float) -> Snapshot:
    from skulkctl.client import Client
    from skulkctl.fetch import fetch_state

    # A new client each time: another endpoint of the context may answer meanwhile.
    return fetch_state(Client(call.target, timeout_s, call.talk.detail))


def _find(snapshot: Snapshot, instance_id: str) -> Document | None:
    items = instance_items(snapshot.state)
    return next((item for item in items if item["id"] == instance_id), None)


def _is_reached(goal: Goal, item: Document | None) -> bool:
    if goal.wanted == "deleted":
        return item is None
    return item is not None and item["status"] == "ready"


class _Moves:
    """Tells of every move of the instance, once; asks only when one may have happened."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        self._runners: list[str] | None = None
        self._told = 0

    def seen(self, item: Document | None, line: ProgressLine) -> Document | None:
        """The instance with what its record says, as far as that was asked for."""
        if item is None:
            return None
        runners = [str(dig(runner, "id")) for runner in sequence(item, "runners")]
        if runners == self._runners and not failures(item):
            return item
        self._runners = runners
        known = fetch_placements(self._call.client, self._call.talk)
        [item] = with_moves([item], known)
        moves = sequence(item, "moves")
        for move in moves[self._told :]:
            line.clear()
            self._call.talk.note(f"moved {move_line(move)}")
        self._told = len(moves)
        return item


class _Grace:
    """Patience with failures that the master mends by moving the instance elsewhere."""

    def __init__(self) -> None:
        self._until: float | None = None

    def lasts(self, item: Document | None) -> bool:
        """Whether what is wrong may be gone in a moment; never for long."""
        wrong = [str(runner["error"]) for runner in failures(item)] if item is not None else []
        if not any(mark in why for mark in _MOVABLE for why in wrong):
            self._until = None
            return False
        now = time.monotonic()
        self._until = now + MOVE_S if self._until is None else self._until
        return now < self._until


def _check(call: Invocation, goal: Goal, item: Document | None) -> None:
    """Raises CliError when an end has come that the user wants to hear of."""
    if item is None:
        if "deleted" in goal.fail_on:
            raise CliError(
                f"{goal.name} was deleted before it was {goal.wanted}", hints=["skulkctl instances"]
            )
        return
    broken = failures(item) if "failed" in goal.fail_on else []
    if goal.patient:
        broken = [one for one in broken if any(mark in str(one["error"]) for mark in _FINAL)]
    if broken:
        raise _failed(call, goal, broken[0], item)


def _failed(call: Invocation, goal: Goal, runner: Document, item: Document) -> CliError:
    rank = "" if runner["rank"] is None else f"rank {runner['rank']} "
    why = [f"{rank}on {runner['node']} (runner {runner['id']}): {runner['error']}"]
    phase = _last_phase(call, runner)
    if phase:
        why.append(f"last phase: {phase}")
    if stays := text(item, "notMoved"):
        why.append(f"not moved elsewhere: {stays}")
    short = short_instance(goal.instance_id)
    again = f"skulkctl restart --instance {short} --wait"
    if is_stock(call.client):
        again = place_again(goal.instance_id, goal.model_id)
    hints = [
        f"skulkctl diagnose {runner['node']}",
        f"after fixing it, run:  {again}",
        f"unload it:  skulkctl delete {short}",
    ]
    return CliError(f"{goal.name} did not become {goal.wanted}", *why, hints=hints)


def _last_phase(call: Invocation, runner: Document) -> str | None:
    """What the runner did last, as its node's supervisor recorded it; None when nobody says."""
    from skulkctl.client import Client, path_segment

    client = Client(call.target, _LOOK_S, call.talk.detail)
    try:
        path = f"/v1/diagnostics/cluster/{path_segment(str(runner['nodeId']))}"
        diagnostics = client.get_optional(path)
    except CliError as error:
        call.talk.detail(error.what)
        return None
    for record in sequence(diagnostics, "supervisorRunners"):
        if text(record, "runnerId") == runner["id"]:
            detail = text(record, "phaseDetail")
            phase = text(record, "phase")
            return f"{phase} ({detail})" if phase and detail else phase
    return None


def _progress(goal: Goal, item: Document | None) -> tuple[str, str, float | None]:
    """Stage, text and fraction for the progress line."""
    if item is None:
        return "unseen", f"{goal.name}: not in the cluster's state yet", None
    if goal.wanted == "deleted":
        return "deleting", f"{goal.name}: waiting for its {item['totalRunners']} runners", None
    runners = [entry for entry in sequence(item, "runners") if isinstance(entry, Mapping)]
    ranks = [f"{runner['node']} {runner_text(runner)}" for runner in runners]
    stage = " ".join(str(runner["status"]) for runner in runners)
    # The name comes last: it is what a narrow terminal may cut off.
    return stage, f"{', '.join(ranks)}  {goal.name}", _fraction(runners)


def _fraction(runners: list[Document]) -> float | None:
    """Bytes copied while files are on their way, layers loaded while every rank loads."""
    moving = [
        mapping(runner, "staging")
        for runner in runners
        if text(runner, "staging", "status") == "ongoing"
    ]
    if moving:
        return _share(
            [integer(staging, "doneBytes") for staging in moving],
            [integer(staging, "totalBytes") for staging in moving],
        )
    return _share(
        [integer(runner, "layersLoaded") for runner in runners],
        [integer(runner, "layersToLoad") for runner in runners],
    )


def _share(done: list[int | None], totals: list[int | None]) -> float | None:
    """What is done of all; None when a part of it is not known."""
    if not done or None in done or not all(totals):
        return None
    return sum(count or 0 for count in done) / sum(total or 0 for total in totals)


def _too_late(goal: Goal, item: Document | None, limit_s: float) -> DeadlinePassed:
    told = f"status {item['status']}" if item else "not in the cluster's state"
    detail = text(item, "detail")
    told = f"{told}: {detail}" if detail else told
    return DeadlinePassed(
        f"{goal.name} is not {goal.wanted} yet",
        f"waited {age_text(limit_s)}; {told}; it goes on in the cluster",
        hints=[
            f"wait longer:  skulkctl wait {short_instance(goal.instance_id)} "
            f"--for {goal.wanted} --timeout 30m"
        ],
    )
