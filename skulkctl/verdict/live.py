"""Where a rank is at this very moment, as its runner's pulse tells; and who is waited for. Pure.

Entries say what was begun. After "entered the barrier" a rank may wait in it or may never have
come to the collective; only the pulse tells these apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skulkctl.verdict.waits import Wait
from skulkctl.views.read import integer, mapping, number, text

if TYPE_CHECKING:
    from skulkctl.verdict.ranks import Rank

FROZEN_S = 10.0
"""A runner at work tells its pulse every second; this long without one, it does not run."""

# Joining MLX's group holds the interpreter, so that no pulse comes while it lasts.
_SILENT_SITE = "group_handshake"
SITES = {
    "mx_barrier": Wait.BARRIER,
    "pipeline_first_eval_recv": Wait.RECV,
    "pipeline_last_eval_output": Wait.LOCAL,
    "pipeline_last_eval_all_gather": Wait.GATHER,
    "pipeline_step": Wait.STEP,
    "model_eval": Wait.GATHER,
    "model_step": Wait.GATHER,
    "order_wait": Wait.AGREEMENT,
    "task_wait": Wait.AGREEMENT,
    _SILENT_SITE: Wait.GATHER,
}


@dataclass(frozen=True, slots=True)
class Live:
    """A pulse. `site` is what the rank waits in; None: it does something of its own."""

    busy: bool
    step: int
    moves: int
    site: str | None
    silent_s: float
    still_s: float

    @property
    def frozen(self) -> bool:
        """At work, and its process does not run."""
        return self.busy and self.silent_s >= FROZEN_S and self.site != _SILENT_SITE

    @property
    def fresh(self) -> bool:
        return self.busy and self.silent_s < FROZEN_S

    @property
    def out(self) -> bool:
        """At work, running, and in no wait at all."""
        return self.fresh and self.site is None


def live_of(runner: object) -> Live | None:
    told = mapping(runner, "live")
    if not told:
        return None
    return Live(
        busy=told.get("busy") is True,
        step=integer(told, "step") or 0,
        moves=integer(told, "moves") or 0,
        site=text(told, "site"),
        silent_s=number(told, "silentSeconds") or 0.0,
        still_s=number(told, "stillSeconds") or 0.0,
    )


def wait_now(recorded: Wait, live: Live | None) -> Wait:
    """What a rank waits for, by its pulse where that says more than its entries."""
    if live is None or not live.fresh:
        return recorded
    return Wait.LOCAL if live.site is None else SITES.get(live.site, recorded)


def suspect(ranks: Sequence[Rank]) -> Rank | None:
    """The one rank that all others wait for, as far as that can be told.

    First who does not run at all; then who is in no wait; then who computes, of several the last
    in the pipeline, because handing data over is part of that; then who queues a step.
    """
    frozen = [rank for rank in ranks if rank.live is not None and rank.live.frozen]
    out = [rank for rank in ranks if rank.live is not None and rank.live.out]
    if frozen or out:
        return _only(frozen or out)
    if any(rank.live is None for rank in ranks):
        return _only([rank for rank in ranks if rank.works])
    computing = [rank for rank in ranks if rank.wait is Wait.LOCAL]
    if computing:
        return max(computing, key=lambda rank: rank.rank)
    return _only([rank for rank in ranks if rank.wait in (Wait.STEP, Wait.AFTER)])


def _only(ranks: Sequence[Rank]) -> Rank | None:
    return ranks[0] if len(ranks) == 1 else None
