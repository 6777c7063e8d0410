"""Which staged copies go: the newest are kept up to a budget, everything older is deleted. Pure.

The budget is a promise to the operator: eviction never leaves less than it of copies that nobody
uses, unless there were less before. So the copy that crosses the line stays, and the newest one
always does. Only a budget of nothing keeps nothing.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Copy:
    """A staged model as eviction sees it: the name of its directory, its size, its last use."""

    name: str
    size_bytes: int
    last_used: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Every copy is in one of the three, the last used first."""

    evict: tuple[Copy, ...] = ()
    keep: tuple[Copy, ...] = ()
    in_use: tuple[Copy, ...] = ()

    @property
    def evicted_bytes(self) -> int:
        return sum(copy.size_bytes for copy in self.evict)

    @property
    def kept_bytes(self) -> int:
        return sum(copy.size_bytes for copy in self.keep)


def plan_eviction(
    copies: Iterable[Copy], in_use: Collection[str], budget_bytes: int | None
) -> Eviction:
    """What goes and what stays. A budget of None keeps everything.

    `in_use` are names; what is in use is neither deleted nor counted against the budget.
    """
    ordered = newest_first(copies)
    used = tuple(copy for copy in ordered if copy.name in in_use)
    evict: list[Copy] = []
    keep: list[Copy] = []
    kept_bytes = 0
    for copy in ordered:
        if copy.name in in_use:
            continue
        if budget_bytes is None or kept_bytes < budget_bytes:
            keep.append(copy)
            kept_bytes += copy.size_bytes
        else:
            evict.append(copy)
    return Eviction(tuple(evict), tuple(keep), used)


def newest_first(copies: Iterable[Copy]) -> list[Copy]:
    """By last use; equal ones by name, so that two looks agree."""
    return sorted(copies, key=lambda copy: (-copy.last_used, copy.name))


def budget_of(keep_recent_gb: float) -> int:
    """Bytes of `staging_keep_recent_gb`, which counts GiB."""
    return int(keep_recent_gb * GIB)
