"""Every API family against `/v1/chat/completions` in the same run, and all of them at once."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.families import FAMILIES, Busy, Family, ask
from bench.figures import Figure
from bench.serve import ENVIRONMENT, TOPICS, skulkctl
from bench.sse_client import Run
from scripts.live_daemon import live_daemon

CLIENTS = 64
REQUESTS = 3
MIXED_TOKENS = 32
SHORT_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to measure; `rounds` of long answers, `firsts` of short ones."""

    name: str
    source: str
    model: str
    max_tokens: int
    rounds: int
    firsts: int


SUBJECTS = (
    Subject("tiny", "tiny", "skulk/tiny-llama", 256, rounds=24, firsts=60),
    Subject("SmolLM2", "demo", "skulk/SmolLM2-135M-Instruct", 48, rounds=6, firsts=8),
)
Runs = dict[str, list[Run]]


def run() -> list[Figure]:
    env = {**ENVIRONMENT, "SKULK_MODELS_DIR": str(Path(sys.prefix) / "demo-models")}
    figures: list[Figure] = []
    with live_daemon("bench", env=env) as daemon:
        for subject in SUBJECTS:
            skulkctl(daemon, "model", "pull", subject.source)
            skulkctl(daemon, "place", subject.model, "--wait", "--timeout", "5m")
            figures += asyncio.run(_measure(subject, daemon.url))
            skulkctl(daemon, "delete", subject.model, "--yes", "--wait")
    return figures


async def _measure(subject: Subject, url: str) -> list[Figure]:
    timeout = aiohttp.ClientTimeout(total=900)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        await _in_turns(session, url, subject, 1, SHORT_TOKENS, 0)
        long = await _in_turns(session, url, subject, subject.rounds, subject.max_tokens, 1000)
        short = await _in_turns(session, url, subject, subject.firsts, SHORT_TOKENS, 2000)
        chat, *others = FAMILIES
        figures = []
        for family in others:
            figures.append(_rate(subject, family, long[family.name], long[chat.name]))
            figures.append(_first(subject, family, short[family.name], short[chat.name]))
        if subject is SUBJECTS[0]:
            figures += await _mixed(session, url, subject)
    return figures


async def _in_turns(
    session: aiohttp.ClientSession, url: str, subject: Subject, rounds: int, limit: int, base: int
) -> Runs:
    """One answer of each family in turn. No two prompts are the same, all have one length, and
    each round begins with another family."""
    runs: Runs = {family.name: [] for family in FAMILIES}
    for turn in range(rounds):
        shift = turn % len(FAMILIES)
        for at, family in enumerate((*FAMILIES[shift:], *FAMILIES[:shift])):
            text = _prompt(base + turn * len(FAMILIES) + at)
            runs[family.name].append(await ask(session, url, family, subject.model, text, limit))
    return runs


def _prompt(number: int) -> str:
    # The number comes first: nothing of an earlier prompt can be reused.
    return f"{number:05d}: Tell me something about {TOPICS[0]}."


def _rate(subject: Subject, family: Family, mine: Sequence[Run], chats: Sequence[Run]) -> Figure:
    ratios = [one.decode_rate / other.decode_rate for one, other in zip(mine, chats, strict=True)]
    ours, theirs = (statistics.median(r.decode_rate for r in runs) for runs in (mine, chats))
    return Figure(
        f"{subject.name}, {family.name}: tokens/s / chat completions", statistics.median(ratios),
        0.98, "more",
        detail=f"{ours:.1f} against {theirs:.1f} tokens/s, {len(mine)} rounds, spread "
        f"{_spread(ratios)}",
    )  # fmt: skip


def _first(subject: Subject, family: Family, mine: Sequence[Run], chats: Sequence[Run]) -> Figure:
    ratios = [one.first_s / other.first_s for one, other in zip(mine, chats, strict=True)]
    ours, theirs = (1000 * statistics.median(r.first_s for r in runs) for runs in (mine, chats))
    return Figure(
        f"{subject.name}, {family.name}: first token / chat completions",
        statistics.median(ratios), 1.05, "less",
        detail=f"{ours:.1f} against {theirs:.1f} ms, {len(mine)} rounds, spread {_spread(ratios)}",
    )  # fmt: skip


def _spread(ratios: Sequence[float]) -> str:
    """The middle half of the rounds."""
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{low:.2f} to {high:.2f}"


class _Mixed:
    """Many clients at once, each with one family and one request after the other.

    A client that is told to come back does so when it was told to, as the real ones do.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self._session, self._url, self._model = session, url, model
        self._began = time.perf_counter()
        self.failed: list[str] = []
        self.repeated = 0

    async def client(self, number: int) -> float:
        """Its tokens per second."""
        family, tokens = FAMILIES[number % len(FAMILIES)], 0
        for at in range(REQUESTS):
            try:
                tokens += await self._ask(family, _prompt(10_000 + number * REQUESTS + at))
            except (RuntimeError, aiohttp.ClientError, TimeoutError) as error:
                self.failed.append(f"{family.name}: {error}")
        return tokens / (time.perf_counter() - self._began)

    async def _ask(self, family: Family, prompt: str) -> int:
        while True:
            try:
                got = await ask(self._session, self._url, family, self._model, prompt, MIXED_TOKENS)
            except Busy as busy:
                self.repeated += 1
                await asyncio.sleep(busy.after_s)
            else:
                return got.tokens


async def _mixed(session: aiohttp.ClientSession, url: str, subject: Subject) -> list[Figure]:
    mixed = _Mixed(session, url, subject.model)
    rates = await asyncio.gather(*(mixed.client(number) for number in range(CLIENTS)))
    middle, slowest = statistics.median(rates), min(rates)
    slow = FAMILIES[rates.index(slowest) % len(FAMILIES)].name
    total = CLIENTS * REQUESTS
    return [
        Figure(
            f"{subject.name}, {CLIENTS} clients of mixed families: failed requests",
            len(mixed.failed), 0, "less", "",
            detail=f"of {total}; {mixed.repeated} times busy (429) and asked again as told "
            + "; ".join(dict.fromkeys(mixed.failed))[:200],
        ),
        Figure(
            f"{subject.name}, {CLIENTS} clients of mixed families: slowest / median client",
            slowest / middle, 0.5, "more",
            detail=f"{slowest:.1f} ({slow}) against {middle:.1f} tokens/s, {REQUESTS} each",
        ),
    ]  # fmt: skip
