"""What is done to a cluster in a chaos run, as data: a seed gives the same list again. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PATIENCE = 0.7
"""How often the cluster is given time to find together before the next act."""

LONGEST_S = {
    "kill": 6.0,
    "kill_two": 6.0,
    "stop": 3.0,
    "restart": 0.0,
    "freeze": 12.0,
    "freeze_all": 12.0,
    "kill_runner": 0.0,
    "fill_disk": 8.0,
    "drain": 5.0,
    "place": 0.0,
    "delete": 0.0,
    "configure": 0.0,
    "kill_while_writing": 0.02,
    "trace": 3.0,
}
"""Every kind of act, and how long at most before it is undone."""

CUTS = {"cut": 15.0, "cut_one_way": 10.0}
"""For nodes on machines of their own."""

SPARES_THE_WITNESS = ("kill", "kill_two", "stop", "restart", "kill_while_writing")
"""Acts that end a process. The first node lives through the run, so that growth would show."""


@dataclass(frozen=True, slots=True)
class Act:
    """Nodes by their number; an act takes as many of them as it needs."""

    kind: str
    nodes: tuple[int, ...]
    pause_s: float
    settle: bool
    """Whether the cluster finds together before the next one."""
    number: int
    """For whatever else has to be chosen."""

    def __str__(self) -> str:
        names = " ".join(f"kite{node + 1}" for node in self.nodes[:2])
        return f"{self.kind} [{names}] for {self.pause_s:.2f} s{', then settle' * self.settle}"


def acts(seed: int, nodes: int, kinds: Sequence[str], longest: float = 1.0) -> Iterator[Act]:
    """Without end: every kind once in random order, then the same again in another order.

    `longest` scales the pauses.
    """
    chance = random.Random(seed)
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            first = 1 if kind in SPARES_THE_WITNESS else 0
            numbers = list(range(first, nodes))
            chance.shuffle(numbers)
            limit_s = (LONGEST_S | CUTS)[kind] * longest
            yield Act(
                kind,
                tuple(numbers),
                chance.uniform(min(0.5, limit_s), limit_s),
                chance.random() < PATIENCE,
                chance.randrange(1, 1000),
            )
