"""A streaming chat client that notes when tokens arrive; the same for every server measured."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

import aiohttp

# Against the ends of text that our models know, so that all compute the same number of tokens.
NO_END = {0: -100.0, 2: -100.0}


@dataclass(frozen=True, slots=True)
class Run:
    """One streamed answer: its text, when its first and last token came, how many there were."""

    text: str
    first_s: float
    last_s: float
    tokens: int

    @property
    def decode_rate(self) -> float:
        return (self.tokens - 1) / (self.last_s - self.first_s)


async def ask(session: aiohttp.ClientSession, url: str, body: dict[str, object]) -> Run:
    """Stream one chat completion. Raises RuntimeError when the server reports an error."""
    started = time.perf_counter()
    first = last = 0.0
    pieces: list[str] = []
    request = {**body, "stream": True, "stream_options": {"include_usage": True}}
    tokens = 0
    async with session.post(f"{url}/v1/chat/completions", json=request) as answer:
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {await answer.text()}")
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            frame = json.loads(line[6:])
            if "error" in frame:
                raise RuntimeError(frame["error"]["message"])
            tokens = (frame.get("usage") or {}).get("completion_tokens") or tokens
            choices = frame.get("choices") or [{}]
            if piece := choices[0].get("delta", {}).get("content"):
                last = time.perf_counter() - started
                first = first or last
                pieces.append(piece)
    return Run("".join(pieces), first, last, tokens)


async def ask_all(url: str, bodies: list[dict[str, object]]) -> tuple[list[Run], float]:
    """All of them at once, and the time until the last one ended."""
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        started = time.perf_counter()
        runs = await asyncio.gather(*(ask(session, url, body) for body in bodies))
        return runs, time.perf_counter() - started
