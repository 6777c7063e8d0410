"""First tokens with two instances of a model, routed by known prefixes and by load alone.

Four groups of clients share a system prompt of 1,500 tokens each; the prefix cache of one instance
holds four prompts. Two daemons that differ in `runtime.prefix_routing` only take rounds in turns.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

import aiohttp

from bench.figures import Figure
from bench.serve import ENVIRONMENT, skulkctl
from bench.sse_client import Run, ask
from scripts.live_daemon import LiveDaemon, live_daemon

MODEL = "skulk/SmolLM2-135M-Instruct"
GROUPS = 4
CLIENTS = 2
ROUNDS = 3
ANSWER_TOKENS = 8
# 1,500 tokens; the caches of one prompt take 70 MB.
SYSTEM_WORDS = 1470
CACHE_MIB = 320
WORDS = ("river", "copper", "window", "garden", "paper", "winter", "bridge", "lantern", "orchard")


def run() -> list[Figure]:
    firsts: dict[bool, list[float]] = {True: [], False: []}
    with ExitStack() as stack:
        daemons = {by_prefix: _daemon(stack, by_prefix) for by_prefix in firsts}
        for turn in range(ROUNDS + 1):
            for by_prefix, daemon in daemons.items():
                runs = asyncio.run(_round(daemon.url, turn))
                # Nobody has read anything before the first round.
                if turn:
                    firsts[by_prefix] += [one.first_s for one in runs]
    routed, spread = statistics.mean(firsts[True]), statistics.mean(firsts[False])
    count = len(firsts[True])
    return [
        Figure(
            f"SmolLM2, 2 instances, {GROUPS} shared system prompts of 1,500 tokens:"
            " mean first token by prefix / by load",
            routed / spread, 0.5, "less",
            detail=f"{routed:.2f} s against {spread:.2f} s, {count} requests each,"
            f" {CLIENTS} at a time",
        )
    ]  # fmt: skip


def _daemon(stack: ExitStack, by_prefix: bool) -> LiveDaemon:
    env = {**ENVIRONMENT, "SKULK_MODELS_DIR": str(Path(sys.prefix) / "demo-models")}
    switch = str(by_prefix).lower()
    config = f"runtime: {{prefix_routing: {switch}, prefix_cache_mib: {CACHE_MIB}}}\n"
    daemon = stack.enter_context(live_daemon(f"bench-{switch}", env=env, config=config))
    skulkctl(daemon, "model", "pull", "demo")
    for _ in range(2):
        skulkctl(daemon, "place", MODEL, "--wait", "--timeout", "5m")
    return daemon


async def _round(url: str, turn: int) -> list[Run]:
    """Two requests of every group in an order of its own, a few at a time."""
    order = list(range(GROUPS)) * 2
    random.Random(turn).shuffle(order)
    waiting = [_body(group, turn, number) for number, group in enumerate(order)]
    runs: list[Run] = []

    async def client(session: aiohttp.ClientSession) -> None:
        while waiting:
            runs.append(await ask(session, url, waiting.pop(0)))

    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await asyncio.gather(*(client(session) for _ in range(CLIENTS)))
    return runs


def _body(group: int, turn: int, number: int) -> dict[str, object]:
    chosen = random.Random(1000 + group).choices(WORDS, k=SYSTEM_WORDS)
    messages = [
        {"role": "system", "content": f"You are clerk {group}. " + " ".join(chosen)},
        {"role": "user", "content": f"Question {turn}.{number}: what is next?"},
    ]
    return {
        "model": MODEL,
        "messages": messages,
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0.0,
    }
