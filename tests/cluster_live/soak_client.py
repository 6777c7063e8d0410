"""Clients that never stop asking, and what each of their requests may come to.

A request is answered, or fails in a way that tells the client to ask again. A connection may only
break when the very node that was asked was killed at that moment: nobody can speak then. A node
that is stopped answers what it has, and refuses connections afterwards.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.cluster_live.chatting import Answer, question
from tests.cluster_live.chronicle import Chronicle
from tests.cluster_live.cluster import LiveCluster
from tests.cluster_live.live_node import LiveNode

LONGEST_ANSWER_S = 90.0
RETRYABLE = (429, 500, 503)
UNEXPECTED = "unexpected error"


@dataclass
class Client:
    """Asks one living node after the other; keeps what every request came to."""

    cluster: LiveCluster
    chronicle: Chronicle
    chance: random.Random
    results: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.is_set():
            ready = [node for node in self.cluster.alive if node.daemon.ready_lines]
            if ready:
                self._ask(self.chance.choice(ready))
            self.stop.wait(0.05)

    def _ask(self, node: LiveNode) -> None:
        try:
            port = node.port
        except IndexError:
            return  # it was started anew since
        body = question(self.chance.randrange(4, 48), stream=self.chance.random() < 0.7)
        begun = time.monotonic()
        answer = Answer(node, body, port=port).begin()
        while not answer.done and time.monotonic() - begun < LONGEST_ANSWER_S:
            time.sleep(0.02)
        came_to = self._judge(answer, node, begun)
        self.results[came_to] += 1
        if came_to in ("hung", "bad"):
            ended = (answer.ended_at or time.monotonic()) - self.chronicle.began
            span = f"{begun - self.chronicle.began:.2f} to {ended:.2f} s"
            kind = "stream" if body["stream"] else "whole answer"
            self.bad.append(f"{came_to}: {node.name}, {kind}, {span}: {answer.end_text()}")
            self.chronicle.note(self.bad[-1])

    def _judge(self, answer: Answer, node: LiveNode, begun: float) -> str:
        if not answer.done:
            return "hung"
        if answer.broken is not None:
            return self._judge_broken(answer, node, begun)
        if answer.succeeded:
            return "answered"
        if UNEXPECTED in answer.end_text():
            return "bad"
        if answer.status == 200:
            # A stream that has begun can only say it in a frame, which must be its last.
            code = (answer.error or {}).get("code")
            return "retryable" if code in RETRYABLE and answer.finished else "bad"
        again = "retry-after" in answer.headers
        return "retryable" if answer.status in RETRYABLE and again else "bad"

    def _judge_broken(self, answer: Answer, node: LiveNode, begun: float) -> str:
        downs = self.chronicle.downs_of(node.name, begun, answer.ended_at or time.monotonic())
        if any(one.killed for one in downs):
            return "asked node was killed"
        refused = (answer.broken or "").startswith("ConnectionRefused")
        return "asked node was down" if downs and refused else "bad"
