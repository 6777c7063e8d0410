"""Streaming clients of every API family that note when tokens arrive, all at the same cost.

A line is only searched for a marker while tokens arrive; counts are read from the last lines.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from bench.sse_client import Run

LAST_LINES = 12


class Busy(Exception):
    """The server asks its client to come back after so many seconds."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"busy for {after_s:g} s")
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class Family:
    """How to ask, how to tell a line with a token, where the count of tokens is."""

    name: str
    path: str
    body: Callable[[str, str, int], dict[str, Any]]
    token: bytes
    count: Callable[[dict[str, Any]], int | None]


def _messages(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


FAMILIES = (
    Family(
        "chat completions",
        "/v1/chat/completions",
        lambda model, prompt, limit: {
            "model": model, "messages": _messages(prompt), "max_tokens": limit, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True},
        },
        b'"content":"',
        lambda body: (body.get("usage") or {}).get("completion_tokens"),
    ),
    Family(
        "Anthropic messages",
        "/v1/messages",
        lambda model, prompt, limit: {
            "model": model, "messages": _messages(prompt), "max_tokens": limit, "temperature": 0,
            "stream": True,
        },
        b'"text_delta"',
        lambda body: (body.get("usage") or {}).get("output_tokens"),
    ),
    Family(
        "OpenAI responses",
        "/v1/responses",
        lambda model, prompt, limit: {
            "model": model, "input": prompt, "max_output_tokens": limit, "temperature": 0,
            "stream": True,
        },
        b'"response.output_text.delta"',
        lambda body: ((body.get("response") or {}).get("usage") or {}).get("output_tokens"),
    ),
    Family(
        "Ollama chat",
        "/api/chat",
        lambda model, prompt, limit: {
            "model": model, "messages": _messages(prompt),
            "options": {"num_predict": limit, "temperature": 0},
        },
        b'"done":false',
        lambda body: body.get("eval_count"),
    ),
)  # fmt: skip


async def ask(
    session: aiohttp.ClientSession, url: str, family: Family, model: str, prompt: str, limit: int
) -> Run:
    """Stream one answer. Raises Busy, or RuntimeError when the server reports another error."""
    started = time.perf_counter()
    first = last = 0.0
    lines: deque[bytes] = deque(maxlen=LAST_LINES)
    async with session.post(f"{url}{family.path}", json=family.body(model, prompt, limit)) as got:
        if got.status == 429:
            raise Busy(float(got.headers["Retry-After"]))
        if got.status != 200:
            raise RuntimeError(f"{got.status}: {await got.text()}")
        async for line in got.content:
            lines.append(line)
            if family.token in line:
                last = time.perf_counter() - started
                first = first or last
    counts = [family.count(json.loads(text)) for text in map(_json, lines) if text]
    tokens = next((count for count in reversed(counts) if count), None)
    if tokens is None:
        raise RuntimeError(f"{family.path}: no complete answer: {b''.join(lines)[-500:]!r}")
    return Run("", first, last, tokens)


def _json(line: bytes) -> bytes:
    text = line.removeprefix(b"data: ").strip()
    return text if text.startswith(b"{") else b""
