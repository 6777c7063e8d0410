"""`python -m skulkd.store` as a child process of the daemon, and cards from the hub by it.

The daemon must not import the libraries that the child needs.
"""

import asyncio
import contextlib
import json
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from skulkd.store.errors import (
    DownloadError,
    HubTimeoutError,
    HubUnreachableError,
    StoreError,
    UnknownModelError,
)
from skulkd.store.model_ids import check_model_id
from skulkd.wire.cards import ModelCard

STOP_S = 2.0
LINE_LIMIT = 1 << 20
DESCRIBE_S = 60.0
ANSWER_S = 6.0
"""How long a request waits; the child goes on, so that a repeated request finds the card."""
CACHE_S = 300.0
UNREACHABLE_S = 15.0
MAX_CACHED = 200
_ERRORS = {kind.kind: kind for kind in (UnknownModelError, HubUnreachableError, HubTimeoutError)}


async def child_events(
    arguments: Sequence[str], environ: Mapping[str, str], token: str | None
) -> AsyncGenerator[dict[str, Any], None]:
    """The events that the child writes. Closing the generator ends the child."""
    environ = dict(environ) | ({"HF_TOKEN": token} if token else {})
    environ["PYTHONPATH"] = ":".join(path for path in sys.path if path)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "skulkd.store", *arguments,
        stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=environ, limit=LINE_LIMIT,
    )  # fmt: skip
    try:
        if child.stdout is not None:
            async for line in child.stdout:
                yield _event(line)
    finally:
        await _end(child)


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


async def _end(child: Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), STOP_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


@dataclass(slots=True)
class HubCards:
    """Cards made from the hub's files, one request at a time, cached for a while.

    After a connection failure the next requests fail at once, because each needs a process.
    """

    environ: Mapping[str, str]
    token: str | None = None
    offline: bool = False
    clock: Callable[[], float] = time.monotonic
    answer_s: float = ANSWER_S
    _jobs: dict[str, asyncio.Task[ModelCard]] = field(default_factory=dict)
    _cache: dict[str, tuple[ModelCard, float]] = field(default_factory=dict)
    _unreachable: tuple[DownloadError, float] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def describe(self, model_id: str) -> ModelCard:
        """Raises StoreError."""
        check_model_id(model_id)
        if self.offline:
            raise DownloadError("this node is offline and may not use the hub (SKULK_OFFLINE)")
        try:
            async with asyncio.timeout(self.answer_s):
                return await asyncio.shield(self._job(model_id))
        except TimeoutError:
            raise HubTimeoutError(
                f"timed out waiting for the hub ({self.answer_s:g} s), try again"
            ) from None

    def _job(self, model_id: str) -> asyncio.Task[ModelCard]:
        """The one that runs for this model, or a new one. Raises DownloadError."""
        if model_id in self._jobs:
            return self._jobs[model_id]
        if len(self._jobs) >= MAX_CACHED:
            raise DownloadError("too many requests wait for the hub, try again later")
        job = self._jobs[model_id] = asyncio.create_task(self._describe_in_turn(model_id))
        job.add_done_callback(lambda _: self._forget(model_id, job))
        return job

    def _forget(self, model_id: str, job: asyncio.Task[ModelCard]) -> None:
        del self._jobs[model_id]
        if not job.cancelled():
            job.exception()  # nobody may wait any more; asyncio must not report it

    async def _describe_in_turn(self, model_id: str) -> ModelCard:
        async with self._lock:
            now = self.clock()
            known = self._cache.get(model_id)
            if known is not None and now - known[1] < CACHE_S:
                return known[0]
            if self._unreachable is not None and now - self._unreachable[1] < UNREACHABLE_S:
                raise self._unreachable[0]
            card = await self._fetch(model_id)
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[model_id] = (card, self.clock())
            return card

    async def _fetch(self, model_id: str) -> ModelCard:
        last: dict[str, Any] = {}
        try:
            async with asyncio.timeout(DESCRIBE_S):
                arguments = ["describe", model_id]
                async with aclosing(child_events(arguments, self.environ, self.token)) as events:
                    async for event in events:
                        last = event
        except TimeoutError:
            message = f"timed out waiting for the hub ({DESCRIBE_S:g} s)"
            last = {"kind": HubTimeoutError.kind, "message": message}
        if last.get("event") == "done":
            return _read_card(last.get("card"), model_id)
        message = str(last.get("message") or "the child process ended without a result")
        error = _ERRORS.get(str(last.get("kind")), DownloadError)(message)
        if isinstance(error, HubUnreachableError | HubTimeoutError):
            self._unreachable = (error, self.clock())
        raise error


def _read_card(document: object, model_id: str) -> ModelCard:
    try:
        return ModelCard.model_validate(document)
    except ValidationError as error:
        raise StoreError(f"the card made for {model_id} is invalid") from error
