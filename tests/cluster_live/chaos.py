"""Random misfortune for a live cluster.

Used by the soak test; a seed repeats a run, as far as processes and networks repeat themselves.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.cluster_live.chronicle import Chronicle
from tests.cluster_live.cluster import LiveCluster
from tests.cluster_live.lan import Lan

PATIENCE = 0.7


@dataclass
class Chaos:
    """One misfortune after the other; each is undone before the next."""

    cluster: LiveCluster
    chronicle: Chronicle
    chance: random.Random
    network: Lan | None = None
    done: Counter[str] = field(default_factory=Counter)
    _formed: bool = True

    def strike(self) -> None:
        """Usually the cluster finds together before the next, sometimes it is not given time."""
        acts: list[Callable[[], None]] = [self.kill, self.kill_two, self.stop, self.freeze]
        if self._formed:
            acts.append(self.restart)  # needs a node that knows the other
        if self.network is not None:
            acts += [self.cut, self.cut_one_way]
        act = self.chance.choice(acts)
        act()
        self.done[act.__name__] += 1
        self._formed = self.chance.random() < PATIENCE
        if self._formed:
            self.cluster.wait_formed(self.cluster.nodes)
            self.chronicle.note("formed")

    def kill(self) -> None:
        self._kill(1)

    def kill_two(self) -> None:
        self._kill(2)

    def _kill(self, count: int) -> None:
        nodes = self.chance.sample(self.cluster.nodes, count)
        with self.chronicle.down(*nodes, killed=True):
            for node in nodes:
                node.kill()
            self._pause(0, 6)
            self.cluster.start(*nodes)

    def stop(self) -> None:
        node = self.chance.choice(self.cluster.nodes)
        with self.chronicle.down(node, killed=False):
            code = node.stop()
            assert code == 0, f"{node.name} ended with {code}"
            self._pause(0, 3)
            self.cluster.start(node)

    def restart(self) -> None:
        """Through another node, as an operator would."""
        asked, node = self.chance.sample(self.cluster.nodes, 2)
        starts = len(node.daemon.ready_lines)
        with self.chronicle.down(node, killed=False):
            reply = asked.post(f"/admin/restart?node_id={node.node_id}")
            assert reply.status == 200, reply
            node.daemon.wait_ready(starts + 1)

    def freeze(self) -> None:
        node = self.chance.choice(self.cluster.nodes)
        self.chronicle.note(f"freeze {node.name}")
        node.freeze()
        self._pause(0.5, 12)
        node.thaw()
        self.chronicle.note(f"thaw {node.name}")

    def cut(self) -> None:
        assert self.network is not None
        numbers = list(range(len(self.cluster.nodes)))
        self.chance.shuffle(numbers)
        half = self.chance.randrange(1, len(numbers))
        self.chronicle.note(f"cut {self._names(numbers[:half])} | {self._names(numbers[half:])}")
        self.network.cut(numbers[:half], numbers[half:])
        self._heal(15)

    def cut_one_way(self) -> None:
        assert self.network is not None
        source, target = self.chance.sample(range(len(self.cluster.nodes)), 2)
        self.chronicle.note(f"cut {self._names([source])} → {self._names([target])}, one way")
        self.network.cut_one_way(source, target)
        self._heal(10)

    def _heal(self, most_s: float) -> None:
        assert self.network is not None
        self._pause(1, most_s)
        self.network.heal()
        self.chronicle.note("heal")

    def _names(self, numbers: list[int]) -> str:
        return " ".join(self.cluster.nodes[number].name for number in numbers)

    def _pause(self, least_s: float, most_s: float) -> None:
        time.sleep(self.chance.uniform(least_s, most_s))
