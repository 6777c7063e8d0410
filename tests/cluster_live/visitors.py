"""Daemons that join a cluster and leave it again, several at once, in every way there is."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.cluster_live.cluster import LiveCluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

MET_S = 300.0
LONGEST_JOIN_S = 1.5


@dataclass(frozen=True, slots=True)
class Visits:
    """How many visits, by these guests, and the luck that decides how each ends."""

    count: int
    guests: Sequence[LiveNode]
    seed: int

    def make(self, core: Sequence[LiveNode]) -> None:
        """Every guest comes and goes in a thread of its own."""
        turns = [range(start, self.count, len(self.guests)) for start in range(len(self.guests))]
        with ThreadPoolExecutor(len(self.guests)) as pool:
            visits = [
                pool.submit(self._come_and_go, guest, turn, core)
                for guest, turn in zip(self.guests, turns, strict=True)
            ]
        for visit in visits:
            visit.result()

    def _come_and_go(self, guest: LiveNode, turns: range, core: Sequence[LiveNode]) -> None:
        chance = random.Random(f"{self.seed} {guest.name}")
        for turn in turns:
            guest.start()
            match turn % 4:
                case 0:  # killed while it joins, or just before
                    threading.Event().wait(chance.uniform(0, LONGEST_JOIN_S))
                    guest.kill()
                case 1:  # killed as a member
                    self._wait_met(guest, core)
                    guest.kill()
                case 2:  # leaves as a member
                    self._wait_met(guest, core)
                    guest.stop()
                case _:  # leaves as soon as it is there
                    guest.wait_ready()
                    guest.stop()

    def _wait_met(self, guest: LiveNode, core: Sequence[LiveNode]) -> None:
        guest.wait_ready()
        own = guest.node_id

        def met() -> bool:
            return any(one["nodeId"] == own for one in core[0].view()["nodes"])

        wait_until(met, f"{core[0].name} to meet {guest.name}", MET_S)


def add_guests(base: LiveCluster, count: int) -> list[LiveNode]:
    """Not started yet."""
    return [base.add(arguments=("--no-worker",), model=False) for _ in range(count)]
