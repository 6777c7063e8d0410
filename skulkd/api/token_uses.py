"""How this node's tokens are used: rate, requests open at once, last use.

Limits count on each node for itself, so a token may do as much on every node. Knows no HTTP route.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from skulkd.api.errors import ApiError
from skulkd.cluster.tokens import TOKENS, TokenTable
from skulkd.wire.ids import TokenId
from skulkd.wire.tokens import AccessToken, parse_rate

RATE_LIMITED = "rate_limited"
TOO_MANY_REQUESTS = "too_many_requests"
ADMITTED = "admitted"
RETRY_S = 1


class TokenBucket:
    """`count` requests at once, refilled evenly over `per_s` seconds."""

    def __init__(self, count: int, per_s: float, now: float) -> None:
        self._count = count
        self._refill = count / per_s
        self._left = float(count)
        self._at = now

    def take(self, now: float) -> float:
        """0 when the request may go on; else the seconds until the next one may."""
        self._left = min(self._count, self._left + max(0.0, now - self._at) * self._refill)
        self._at = now
        # Rounding must not make a client wait twice for the same request.
        if self._left >= 1.0 - 1e-9:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._refill


@dataclass(slots=True)
class TokenUse:
    """One token on this node, since the daemon started."""

    name: str
    bucket: TokenBucket | None
    last_used_s: float | None = None
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Requests that are being answered and count."""
    results: Counter[str] = field(default_factory=Counter)


class TokenUses:
    """Of every token that was used here."""

    def __init__(
        self,
        table: Callable[[], TokenTable] = TokenTable,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._clock = clock
        self._uses: dict[TokenId, TokenUse] = {}
        self._seen: object = None

    def all(self) -> list[TokenUse]:
        return list(self._uses.values())

    def last_used(self) -> dict[TokenId, datetime]:
        return {
            key: datetime.fromtimestamp(use.last_used_s, UTC)
            for key, use in self._uses.items()
            if use.last_used_s is not None
        }

    def refused(self, token: AccessToken, result: str) -> None:
        self._use(token).results[result] += 1

    @contextmanager
    def admitted(self, token: AccessToken, *, counted: bool) -> Iterator[None]:
        """The block is one request. Raises ApiError 429. `counted`: it fills a place."""
        use = self._use(token)
        task = asyncio.current_task()
        if counted and token.concurrency is not None and len(use.tasks) >= token.concurrency:
            use.results[TOO_MANY_REQUESTS] += 1
            raise _too_many(token)
        wait_s = 0.0 if use.bucket is None else use.bucket.take(self._clock())
        if wait_s > 0:
            use.results[RATE_LIMITED] += 1
            raise _too_fast(token, wait_s)
        use.results[ADMITTED] += 1
        use.last_used_s = time.time()
        if task is None or not counted:
            yield
            return
        use.tasks.add(task)
        try:
            yield
        finally:
            use.tasks.discard(task)

    def end_revoked(self) -> None:
        """End open requests of tokens that were revoked; called after every change."""
        table = self._table()
        seen, self._seen = self._seen, (id(table), table.version)
        if seen == self._seen:
            return
        for token_id, use in list(self._uses.items()):
            if table.is_revoked(token_id):
                for task in list(use.tasks):
                    task.cancel()
                if not use.tasks:
                    del self._uses[token_id]

    def _use(self, token: AccessToken) -> TokenUse:
        use = self._uses.get(token.token_id)
        if use is None:
            if len(self._uses) >= 2 * TOKENS:
                self._forget_unknown()
            bucket = None
            if token.rate is not None:
                bucket = TokenBucket(*parse_rate(token.rate), self._clock())
            use = self._uses[token.token_id] = TokenUse(token.name, bucket)
        return use

    def _forget_unknown(self) -> None:
        known = self._table().tokens
        self._uses = {k: use for k, use in self._uses.items() if k in known or use.tasks}


def _too_fast(token: AccessToken, wait_s: float) -> ApiError:
    seconds = max(1, math.ceil(wait_s))
    text = f"token {token.name} is limited to {token.rate} on this node"
    return _limited(RATE_LIMITED, f"{text}; try again in {seconds} s", token, token.rate, seconds)


def _too_many(token: AccessToken) -> ApiError:
    text = f"token {token.name} has {token.concurrency} requests open on this node, its limit"
    text += "; try again when one of them has ended"
    return _limited(TOO_MANY_REQUESTS, text, token, token.concurrency, RETRY_S)


def _limited(
    kind: str, text: str, token: AccessToken, limit: str | int | None, retry_s: int
) -> ApiError:
    hints = ["a new token can have another limit: skulkctl token create --help"]
    return ApiError(
        429,
        text,
        headers={"Retry-After": str(retry_s)},
        refusal={"kind": kind, "token": token.name, "limit": limit, "hints": hints},
    )
