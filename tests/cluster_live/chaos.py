"""Random misfortune for a live cluster, and clients that never stop asking.

Used by the soak test; a seed repeats a run, as far as processes and networks repeat themselves.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.cluster_live.chatting import Answer, question
from tests.cluster_live.cluster import LiveCluster
from tests.cluster_live.lan import Lan
from tests.cluster_live.live_node import LiveNode

LONGEST_ANSWER_S = 90.0
LONGEST_STOP_S = 15.0
RETRYABLE = (429, 500, 502, 503)


@dataclass
class Client:
    """Asks one living node after the other; keeps what every request came to."""

    cluster: LiveCluster
    chance: random.Random
    results: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.is_set():
            alive = self.cluster.alive
            if not alive:
                self.stop.wait(0.1)
                continue
            node = self.chance.choice(alive)
            with contextlib.suppress(IndexError):  # not ready yet: it has no address
                self._ask(node)
            self.stop.wait(0.05)

    def _ask(self, node: LiveNode) -> None:
        start = node.starts
        answer = Answer(node, question(self.chance.randrange(4, 48)), port=node.port).begin()
        begun = time.monotonic()
        while not answer.done and time.monotonic() - begun < LONGEST_ANSWER_S:
            time.sleep(0.02)
        ends = time.monotonic() + LONGEST_STOP_S
        # A daemon that is on its way out closes its connections a moment before it ends.
        while answer.broken and time.monotonic() < ends and node.alive and node.starts == start:
            time.sleep(0.05)
        self._judge(answer, node.name, node.alive and node.starts == start)

    def _judge(self, answer: Answer, name: str, same: bool) -> None:
        if not answer.done:
            self._note("hung", f"{name}: no end after {LONGEST_ANSWER_S:g} s: {answer.end_text()}")
        elif answer.finished and answer.error is None:
            self.results["answered"] += 1
        elif (answer.error or {}).get("code", answer.status) in RETRYABLE:
            self.results["retryable"] += 1
        elif (answer.broken or "").startswith("ConnectionRefused"):
            self.results["not up yet"] += 1
        elif answer.broken is not None and not same:
            self.results["asked node died"] += 1
        else:
            self._note("bad", f"{name}: {answer.end_text()}")

    def _note(self, kind: str, what: str) -> None:
        self.results[kind] += 1
        self.bad.append(what)


@dataclass
class Chaos:
    """One misfortune at a time, each undone before the next."""

    cluster: LiveCluster
    chance: random.Random
    network: Lan | None = None
    done: Counter[str] = field(default_factory=Counter)

    def strike(self) -> None:
        acts: list[Callable[[], None]] = [self.kill, self.stop, self.freeze, self.kill_two]
        if self.network is not None:
            acts += [self.cut, self.cut_one_way]
        act = self.chance.choice(acts)
        self.done[act.__name__] += 1
        act()

    def kill(self) -> None:
        node = self.chance.choice(self.cluster.nodes)
        node.kill()
        self._pause(0, 6)
        self.cluster.start(node)

    def kill_two(self) -> None:
        nodes = self.chance.sample(self.cluster.nodes, 2)
        for node in nodes:
            node.kill()
        self._pause(0, 6)
        self.cluster.start(*nodes)

    def stop(self) -> None:
        node = self.chance.choice(self.cluster.nodes)
        node.stop()
        self._pause(0, 3)
        self.cluster.start(node)

    def freeze(self) -> None:
        node = self.chance.choice(self.cluster.nodes)
        node.freeze()
        self._pause(0.5, 12)
        node.thaw()

    def cut(self) -> None:
        assert self.network is not None
        numbers = list(range(len(self.cluster.nodes)))
        self.chance.shuffle(numbers)
        half = self.chance.randrange(1, len(numbers))
        self.network.cut(numbers[:half], numbers[half:])
        self._pause(1, 15)
        self.network.heal()

    def cut_one_way(self) -> None:
        assert self.network is not None
        source, target = self.chance.sample(range(len(self.cluster.nodes)), 2)
        self.network.cut_one_way(source, target)
        self._pause(1, 10)
        self.network.heal()

    def _pause(self, least_s: float, most_s: float) -> None:
        time.sleep(self.chance.uniform(least_s, most_s))
