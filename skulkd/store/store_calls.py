"""Questions to the store server from the event loop: each in a thread, with a limit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from skulkd.store.errors import DownloadError
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

    async def _ask(self, path: str, method: str = "GET") -> Any:
        address = await self.address()

        def work() -> Any:
            link = StoreLink(address)
            try:
                return link.json(path, method)
            finally:
                link.drop()

        return await asyncio.to_thread(work)


def _read(parse: Callable[[], T], path: str) -> T:
    try:
        return parse()
    except (ValidationError, TypeError) as error:
        raise _nonsense(path) from error


def _nonsense(path: str) -> DownloadError:
    return DownloadError(f"the store's answer to {path} makes no sense")
