"""Clients that never stop asking, and what each of their requests may come to.

A request is answered with the whole expected text, or fails in a way that tells the client to ask
again. A connection may only break when the very node that was asked was killed at that moment:
nobody can speak then. A node that is stopped answers what it has, and refuses connections
afterwards.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.cluster_live.chatting import Answer, question
from tests.cluster_live.cluster import LiveCluster
from tests.cluster_live.live_node import LiveNode
from tests.soak.chronicle import Chronicle

LONGEST_ANSWER_S = 300.0
"""Ten times what a starved machine needs; the slowest request is told, not judged."""
PAUSE_S = 0.2
"""Between two requests of a client, so that daemons can start on a machine of two cores."""
LENGTHS = (4, 16, 48)
RETRYABLE = (429, 500, 503)
UNEXPECTED = "unexpected error"
STREAMED, HANGS_UP = 0.7, 0.1

Texts = Mapping[tuple[str, int], str]
"""The expected answer, by model and number of tokens."""


@dataclass
class Client:
    """Asks one living node after the other; keeps what every request came to."""

    cluster: LiveCluster
    chronicle: Chronicle
    texts: Texts
    chance: random.Random
    results: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "none")
    """Seconds in which the asked node could have answered, and which request it was."""
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.is_set():
            ready = [node for node in self.cluster.alive if node.daemon.ready_lines]
            if ready:
                self._ask(self.chance.choice(ready))
            self.stop.wait(PAUSE_S)

    def _ask(self, node: LiveNode) -> None:
        try:
            port = node.port
        except IndexError:
            return  # it was started anew since
        model, length = self.chance.choice(list(self.texts))
        body = question(length, model=model, stream=self.chance.random() < STREAMED)
        leaves = body["stream"] and self.chance.random() < HANGS_UP
        begun = time.monotonic()
        answer = Answer(node, body, port=port).begin()
        while not answer.done and time.monotonic() - begun < LONGEST_ANSWER_S:
            if leaves and answer.tokens >= 2:
                answer.hang_up()
                self.results["hung up"] += 1
                return
            time.sleep(0.02)
        self._keep(answer, node, begun, self._judge(answer, node, begun))

    def _keep(self, answer: Answer, node: LiveNode, begun: float, came_to: str) -> None:
        self.results[came_to] += 1
        ended = answer.ended_at or time.monotonic()
        began = self.chronicle.began
        kind = "stream" if answer.body["stream"] else "whole answer"
        told = f"{came_to}: {node.name}, {answer.body['model']}, {kind}"
        told += f", {begun - began:.2f} to {ended - began:.2f} s: {answer.end_text()}"
        took_s = self.chronicle.asked_s(node.name, begun, ended)
        if took_s > self.slowest[0]:
            self.slowest = (took_s, told)
        if came_to in ("hung", "bad", "wrong"):
            self.bad.append(told)
            self.chronicle.note(told)

    def _judge(self, answer: Answer, node: LiveNode, begun: float) -> str:
        if not answer.done:
            return "hung"
        if answer.broken is not None:
            return self._judge_broken(answer, node, begun)
        if answer.succeeded:
            return "answered" if self._is_expected(answer) else "wrong"
        if UNEXPECTED in answer.end_text():
            return "bad"
        if answer.status == 200:
            # A stream that has begun can only say it in a frame, which must be its last.
            code = (answer.error or {}).get("code")
            return "retryable" if code in RETRYABLE and answer.finished else "bad"
        again = "retry-after" in answer.headers
        return "retryable" if answer.status in RETRYABLE and again else "bad"

    def _is_expected(self, answer: Answer) -> bool:
        """Whether it is the whole text, and says that it is."""
        expected = self.texts[answer.body["model"], answer.body["max_tokens"]]
        if answer.body["stream"]:
            choices = [one for frame in answer.frames for one in frame.get("choices", [])]
            text, reason = answer.text, choices[-1]["finish_reason"] if choices else None
        else:
            whole: dict[str, Any] = json.loads("".join(line for _, line in answer.lines))
            choice = whole["choices"][0]
            text, reason = choice["message"]["content"], choice["finish_reason"]
        return bool(text == expected and reason == "length")

    def _judge_broken(self, answer: Answer, node: LiveNode, begun: float) -> str:
        downs = self.chronicle.downs_of(node.name, begun, answer.ended_at or time.monotonic())
        if any(one.killed for one in downs):
            return "asked node was killed"
        refused = (answer.broken or "").startswith("ConnectionRefused")
        return "asked node was down" if downs and refused else "bad"
