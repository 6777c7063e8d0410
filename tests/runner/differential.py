"""Random load for a group of ranks, and its comparison with one rank alone.

A `Round` is made from a seed only, so a failing one can be played again. The moment at which
messages arrive still depends on the machine, as it does in production.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from skulkd.runner.protocol import Cancel, Output, TaskStatus
from skulkd.wire.ids import TaskId
from tests.runner.rank_group import RankGroupOfRunners, task_of
from tests.runner.runner_process import Answer, Runner

ENDED = ("Complete", "Failed", "Cancelled")
Leaving = Literal["stays", "cancels", "hangs up"]
WORDS = ("fox", "tea", "map", "rain", "moss", "salt", "iron", "owl", "reed", "lamp", "kite", "sand")
# Long enough that a hit skips several steps of reading.
OPENINGS = tuple(f"{word} and {word} again, " * 3 for word in WORDS[:4])


@dataclass(frozen=True, slots=True)
class Request:
    """One client. `after` counts the outputs that the group has sent before it comes."""

    text: str
    max_tokens: int
    stop_at: float | None
    """Where in the whole answer its stop string begins, from 0 to 1."""
    leaving: Leaving
    leaves_after: int
    after: int
    seed: int


@dataclass(frozen=True, slots=True)
class Round:
    seed: int
    requests: tuple[Request, ...]


def make_round(seed: int) -> Round:
    chance = random.Random(seed)
    requests = [_make_request(chance) for _ in range(chance.randint(3, 8))]
    return Round(seed, tuple(sorted(requests, key=lambda request: request.after)))


def _make_request(chance: random.Random) -> Request:
    opening = chance.choice(OPENINGS) if chance.random() < 0.5 else ""
    words = " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))
    leaving: Leaving = chance.choices(("stays", "cancels", "hangs up"), (70, 20, 10))[0]
    return Request(
        text=opening + words,
        max_tokens=chance.choice((1, 2, chance.randint(3, 8), chance.randint(8, 24))),
        stop_at=chance.random() if chance.random() < 0.3 else None,
        leaving=leaving,
        leaves_after=chance.randint(1, 8),
        # Half of them come in one burst.
        after=0 if chance.random() < 0.5 else chance.randint(1, 40),
        seed=chance.getrandbits(32),
    )


@dataclass(slots=True)
class Alone:
    """The answers of one rank that serves one request at a time and remembers no prompt."""

    runner: Runner
    _known: dict[tuple[str, int, str], tuple[str, str | None]] = field(default_factory=dict)

    def answer(self, request: Request, stop: str) -> tuple[str, str | None]:
        """Text and finish reason."""
        key = (request.text, request.max_tokens, stop)
        if key not in self._known:
            answer = self.runner.chat(
                request.text, max_output_tokens=request.max_tokens, stop=[stop] if stop else None
            )
            self._known[key] = (answer.text(), answer.finish_reason())
            self.runner.forget()
        return self._known[key]

    def stop_string(self, request: Request) -> str:
        """A piece of the answer, so that the answer really stops there."""
        if request.stop_at is None:
            return ""
        text, _ = self.answer(request, "")
        start = int(len(text) * request.stop_at)
        return text[start : start + 2]


class Play:
    """Sends one round to a group and collects what every client got."""

    def __init__(self, group: RankGroupOfRunners, stop_string: Callable[[Request], str]) -> None:
        self._group = group
        self._stop_string = stop_string
        self._outputs: Counter[TaskId] = Counter()
        self._open: dict[TaskId, Request] = {}
        self.answers: dict[TaskId, tuple[Request, str, Answer]] = {}

    def run(self, played: Round) -> None:
        """Returns when every request has ended on every rank."""
        coming = deque(played.requests)
        stops: dict[TaskId, str] = {}
        started: dict[TaskId, Request] = {}
        while coming or self._open:
            while coming and (not self._open or coming[0].after <= self._outputs.total()):
                request = coming.popleft()
                task_id = TaskId(f"round-{played.seed}-{len(started)}")
                stops[task_id] = self._stop_string(request)
                started[task_id] = request
                self._start(task_id, request, stops[task_id])
            self._take()
        for task_id, request in started.items():
            answer = self._group.answer(task_id)
            self.answers[task_id] = (request, stops[task_id], answer)
        for runner in self._group.ranks:
            runner.forget()

    def _start(self, task_id: TaskId, request: Request, stop: str) -> None:
        task = task_of(
            task_id,
            request.text,
            max_output_tokens=request.max_tokens,
            stop=[stop] if stop else None,
        )
        self._open[task_id] = request
        for runner in self._ranks_in_any_order(request):
            runner.run(task)
            if request.leaving == "hangs up":
                runner.send(Cancel(task_id=task_id))

    def _take(self) -> None:
        message = self._group.leader.receive()
        assert message is not None, f"rank 0 ended; log: {self._group.leader.log_text()}"
        if isinstance(message, Output):
            self._outputs[message.task_id] += 1
            request = self._open.get(message.task_id)
            if (
                request is not None
                and request.leaving == "cancels"
                and self._outputs[message.task_id] == request.leaves_after
            ):
                for runner in self._ranks_in_any_order(request):
                    runner.send(Cancel(task_id=message.task_id))
        elif isinstance(message, TaskStatus) and message.status in ENDED:
            self._open.pop(message.task_id, None)

    def _ranks_in_any_order(self, request: Request) -> list[Runner]:
        ranks = list(self._group.ranks)
        random.Random(request.seed).shuffle(ranks)
        return ranks


def differences(alone: Alone, play: Play) -> list[str]:
    """What clients got and should not have got; empty when all is well."""
    found = []
    for task_id, (request, stop, answer) in play.answers.items():
        text, reason = alone.answer(request, stop)
        status = answer.status.status
        got = (answer.text(), answer.finish_reason())
        left = request.leaving != "stays" and status == "Cancelled"
        if left:
            fits = text.startswith(answer.text())
        else:
            fits = status == "Complete" and got == (text, reason)
        if not fits:
            found.append(f"{task_id} ({status}): {got} instead of {(text, reason)}; {request}")
    return found


def prefix_hits(play: Play) -> int:
    """How many requests found the beginning of their prompt in the cache."""
    details = [
        answer.usage.prompt_tokens_details
        for _, _, answer in play.answers.values()
        if answer.outputs and answer.usage is not None
    ]
    return sum(1 for one in details if one is not None and one.cached_tokens)
