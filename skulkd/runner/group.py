"""The ranks of one instance, as the engine sees them.

The engine runs the same code for one rank and for many; what differs is behind this seam.
"""

from typing import Protocol

from skulkd.runner.scheduler import StepPlan


class Group(Protocol):
    """`agree` returns the plan that every rank carries out; `barrier` waits for all of them."""

    rank: int
    size: int

    def agree(self, plan: StepPlan) -> StepPlan: ...

    def barrier(self) -> None: ...


class SoloGroup:
    """A group of one: it always agrees with itself and never waits."""

    rank = 0
    size = 1

    def agree(self, plan: StepPlan) -> StepPlan:
        return plan

    def barrier(self) -> None:
        return
