"""Fetches from the hub on behalf of this node: one child process for each model, tried again.

On the store host models go into the store and are registered; elsewhere into the models directory.
A failure names its cause, is tried again with growing pauses, and can be asked for again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from skulkd.store.errors import DownloadError, StoreError
from skulkd.store.model_ids import check_model_id, directory_name
from skulkd.store.registry import Registry
from skulkd.store.store_child import child_events
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId
from skulkd.wire.storage import StoreDownload

log = logging.getLogger(__name__)

# What another attempt cannot change.
FINAL = frozenset(
    {"unknown_model", "bad_model_id", "no_space", "unsupported_model", "hub_unreachable"}
)

Heard = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a fetch is started, and how long the pause before each further start is."""

    attempts: int = 3
    first_pause_s: float = 5.0

    def pause_s(self, attempt: int) -> float:
        return float(self.first_pause_s * 2 ** (attempt - 1))


@dataclass(slots=True)
class _Fetch:
    model_id: ModelId
    gguf_file: str | None
    task: asyncio.Task[Path] | None = None
    status: str = "pending"
    done: int = 0
    total: int = 0
    error: str | None = None
    heard: list[Heard] = field(default_factory=list)

    def seen(self) -> StoreDownload:
        progress = 1.0 if self.status == "complete" else min(1.0, self.done / max(1, self.total))
        return StoreDownload.model_validate(
            {
                "model_id": self.model_id,
                "status": self.status,
                "progress": progress,
                "error": self.error,
            }
        )


@dataclass(slots=True)
class HubDesk:
    """A `Fetcher`, and what `Staging` uses on nodes without a store."""

    root: Path
    environ: Mapping[str, str]
    token: str | None = None
    offline: bool = False
    registry: Registry | None = None
    retry: Retry = field(default_factory=Retry)
    arrived: Callable[[], Awaitable[None]] | None = None
    """Awaited before a fetch counts as complete: whoever hears of it may place the model."""
    _fetches: dict[ModelId, _Fetch] = field(default_factory=dict)

    def request(self, model_id: str, gguf_file: str | None = None) -> StoreDownload:
        return self._begin(check_model_id(model_id), gguf_file).seen()

    def status(self, model_id: str) -> StoreDownload | None:
        fetch = self._fetches.get(ModelId(model_id))
        return None if fetch is None else fetch.seen()

    def active(self) -> Sequence[StoreDownload]:
        fetches = [fetch.seen() for fetch in self._fetches.values()]
        return [state for state in fetches if state.status in ("pending", "downloading")]

    def forget(self, model_id: str) -> None:
        fetch = self._fetches.pop(ModelId(model_id), None)
        if fetch is not None and fetch.task is not None:
            fetch.task.cancel()

    async def bring(self, card: ModelCard, heard: Heard) -> Path:
        """Fetch a model and wait for it. Raises StoreError. Cancelling stops the fetch."""
        fetch = self._begin(card.model_id, card.gguf_file)
        fetch.heard.append(heard)
        if fetch.task is None:
            return self.root / directory_name(card.model_id)
        try:
            return await asyncio.shield(fetch.task)
        except asyncio.CancelledError:
            self.forget(card.model_id)
            raise
        finally:
            fetch.heard.remove(heard)

    async def stop(self) -> None:
        """End every fetch; what is on disk is used by the next one."""
        tasks = [fetch.task for fetch in self._fetches.values() if fetch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, model_id: ModelId, gguf_file: str | None) -> _Fetch:
        known = self._fetches.get(model_id)
        if known is not None and known.task is not None and not known.task.done():
            return known
        fetch = _Fetch(model_id, gguf_file)
        self._fetches[model_id] = fetch
        fetch.task = asyncio.create_task(self._run(fetch))
        fetch.task.add_done_callback(_hear_error)
        return fetch

    async def _run(self, fetch: _Fetch) -> Path:
        try:
            path = await self._until_done(fetch)
            if self.registry is not None:
                await asyncio.to_thread(self.registry.add, fetch.model_id)
            if self.arrived is not None:
                await self.arrived()
        except asyncio.CancelledError:
            fetch.status, fetch.error = "failed", "stopped"
            raise
        except StoreError as error:
            fetch.status, fetch.error = "failed", error.message
            log.warning("%s cannot be fetched: %s", fetch.model_id, error.message)
            raise
        fetch.status, fetch.error = "complete", None
        return path

    async def _until_done(self, fetch: _Fetch) -> Path:
        if self.offline:
            raise DownloadError(
                f"{fetch.model_id} is not here, and this node is offline (SKULK_OFFLINE)"
            )
        for attempt in range(1, self.retry.attempts + 1):
            fetch.status = "downloading"
            kind, message = await self._once(fetch)
            if kind is None:
                return self.root / directory_name(fetch.model_id)
            if kind in FINAL or attempt == self.retry.attempts:
                break
            pause_s = self.retry.pause_s(attempt)
            fetch.status = "pending"
            fetch.error = f"{message}; attempt {attempt + 1} follows in {pause_s:g} s"
            log.info("%s: %s", fetch.model_id, fetch.error)
            await asyncio.sleep(pause_s)
        raise DownloadError(
            f"{fetch.model_id}: {message}", hint=f"skulkctl model pull {fetch.model_id}"
        )

    async def _once(self, fetch: _Fetch) -> tuple[str | None, str]:
        """One child process: the kind of its failure and what it said; no kind when it is done."""
        arguments = ["fetch", fetch.model_id, "--into", str(self.root)]
        arguments += ["--gguf-file", fetch.gguf_file] if fetch.gguf_file else []
        outcome: tuple[str | None, str] = ("crashed", "the fetching process ended without a word")
        async with aclosing(child_events(arguments, self.environ, self.token)) as events:
            async for event in events:
                match event.get("event"):
                    case "progress":
                        fetch.done = int(event.get("done_bytes") or 0)
                        fetch.total = int(event.get("total_bytes") or 0)
                        for heard in tuple(fetch.heard):
                            heard(fetch.done, fetch.total)
                    case "done":
                        outcome = (None, "")
                    case "error":
                        outcome = (str(event.get("kind")), str(event.get("message")))
        return outcome


def _hear_error(task: asyncio.Task[Path]) -> None:
    # The state of the fetch says it; nobody need be waiting.
    if not task.cancelled():
        task.exception()
