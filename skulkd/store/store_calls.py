"""Questions to the store server from the event loop: each in a thread, with a limit.

The threads are the store's own: a store host that is frozen must not use up those of the daemon.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from skulkd.store.errors import DownloadError, StoreUnreachableError
from skulkd.store.store_link import StoreAddress, StoreLink, model_path
from skulkd.wire.base import SnakeModel
from skulkd.wire.cards import ModelCard
from skulkd.wire.storage import (
    StoreDeleteAnswer,
    StoreDownload,
    StoreDownloadAnswer,
    StoreHealth,
    StoreRegistryEntry,
)

T = TypeVar("T")
THREADS = 32
PROBE_S = 4.0
"""After so long without an answer the store is asked how it is, and has as long to say so."""
WORK_S = 30.0
"""For a store host that is at work: it asks the hub, or deletes many files."""


class Described(SnakeModel):
    """A model of the store with its card."""

    card: ModelCard
    total_bytes: int


_DOWNLOADS = TypeAdapter(list[StoreDownload])
_ENTRIES = TypeAdapter(list[StoreRegistryEntry])
_CATALOGUE = TypeAdapter(list[Described])
_ANSWER = TypeAdapter(StoreDownloadAnswer)
_DELETED = TypeAdapter(StoreDeleteAnswer)


class StoreCalls:
    """The store as the rest of a node asks it. Every call raises StoreError."""

    def __init__(self, find: Callable[[], Awaitable[StoreAddress]]) -> None:
        self.address = find
        """Where the store is now; its host may have got another address."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store")

    async def health(self) -> StoreHealth:
        document = await self._ask("/health")
        if not isinstance(document, dict):
            raise _nonsense("/health")
        return _read(lambda: StoreHealth(**document), "/health")

    async def registry(self) -> list[StoreRegistryEntry]:
        document = await self._ask("/registry")
        return _read(lambda: _ENTRIES.validate_python(document), "/registry")

    async def downloads(self) -> list[StoreDownload]:
        document = await self._ask("/downloads")
        return _read(lambda: _DOWNLOADS.validate_python(document), "/downloads")

    async def catalogue(self) -> list[Described]:
        """Every model that can be loaded. Empty for a store that does not tell."""
        document = await self._ask("/catalogue")
        return _read(lambda: _CATALOGUE.validate_python(document), "/catalogue")

    async def card(self, model_id: str) -> ModelCard:
        """A card made by the store host from a config.json it has or can get."""
        path = f"/cards/{quote(model_id, safe='')}"
        document = await self._ask(path)
        return _read(lambda: ModelCard.model_validate(document), path)

    async def request_download(self, model_id: str) -> StoreDownloadAnswer:
        path = model_path(model_id, "download")
        document = await self._ask(path, "POST")
        return _read(lambda: _ANSWER.validate_python(document), path)

    async def download_status(self, model_id: str) -> StoreDownloadAnswer:
        path = model_path(model_id, "download", "status")
        document = await self._ask(path)
        return _read(lambda: _ANSWER.validate_python(document), path)

    async def delete(self, model_id: str) -> StoreDeleteAnswer:
        path = model_path(model_id)
        document = await self._ask(path, "DELETE")
        return _read(lambda: _DELETED.validate_python(document), path)

    def in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do blocking work that waits for the store."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def while_reachable(self, work: Coroutine[None, None, T]) -> T:
        """Wait for the work as long as the store answers. Raises StoreUnreachableError."""
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({task}, timeout=PROBE_S))[0]:
                await self._once("/health", "GET", PROBE_S)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _ask(self, path: str, method: str = "GET") -> Any:
        return await self.while_reachable(self._once(path, method, WORK_S))

    async def _once(self, path: str, method: str, deadline_s: float) -> Any:
        address = await self.address()
        link = StoreLink(address)

        def work() -> Any:
            try:
                return link.json(path, method)
            finally:
                link.drop()

        try:
            async with asyncio.timeout(deadline_s):
                return await self.in_thread(work)
        except TimeoutError:
            raise StoreUnreachableError(
                f"the store at {address} did not answer within {deadline_s:g} s",
                hint="is skulkd running on the store host, and its port open?",
            ) from None
        finally:
            link.cut()


def _read(parse: Callable[[], T], path: str) -> T:
    try:
        return parse()
    except (ValidationError, TypeError) as error:
        raise _nonsense(path) from error


def _nonsense(path: str) -> DownloadError:
    return DownloadError(f"the store's answer to {path} makes no sense")
