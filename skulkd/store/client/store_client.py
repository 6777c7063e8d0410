"""Requests to the store host from the event loop, each in a thread and with a timeout.

The threads are the client's own: a store host that hangs must not use up those of the daemon.
"""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
from pydantic import TypeAdapter, ValidationError

from skulkd.store import errors
from skulkd.store.client.connection import (
    CONNECT_HINT,
    CONNECT_S,
    StoreAddress,
    StoreConnection,
    model_path,
)
from skulkd.store.errors import DownloadError, StoreError, StoreUnreachableError
from skulkd.wire.base import SnakeModel
from skulkd.wire.cards import ModelCard
from skulkd.wire.storage import (
    StoreDeleteAnswer,
    StoreDownload,
    StoreDownloadAnswer,
    StoreHealth,
    StoreRegistryEntry,
)
from skulkd.wire.uploads import UploadTarget

T = TypeVar("T")
THREADS = 32
PROBE_S = 4.0
"""After this long without a response the store is probed, with the same timeout."""
WORK_S = 30.0
"""For a store host that is busy: it asks the hub, or deletes many files."""
COMMIT_S = 600.0
_ERRORS = {
    error.kind: error
    for error in vars(errors).values()
    if isinstance(error, type)
    and issubclass(error, StoreError)
    and error.__init__ is StoreError.__init__
}


class StoreModel(SnakeModel):
    """A model of the store with its card."""

    card: ModelCard
    total_bytes: int


_DOWNLOADS = TypeAdapter(list[StoreDownload])
_ENTRIES = TypeAdapter(list[StoreRegistryEntry])
_CATALOGUE = TypeAdapter(list[StoreModel])
_HEALTH = TypeAdapter(StoreHealth)
_CARD = TypeAdapter(ModelCard)
_DOWNLOAD = TypeAdapter(StoreDownloadAnswer)
_DELETED = TypeAdapter(StoreDeleteAnswer)


class StoreClient:
    """The store host as the rest of a node uses it. Every call raises StoreError."""

    def __init__(self, find: Callable[[], Awaitable[StoreAddress]]) -> None:
        self.address = find
        """The current address of the store host, which may change."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store")

    async def health(self) -> StoreHealth:
        return await self._call("/health", _HEALTH)

    async def probe(self) -> str | None:
        """Why the store does not respond right now; None when it does."""
        try:
            await self._send("/health", "GET", PROBE_S)
        except StoreUnreachableError as error:
            return error.message
        except StoreError:
            return None  # an error response is a response
        return None

    async def registry(self) -> list[StoreRegistryEntry]:
        return await self._call("/registry", _ENTRIES)

    async def downloads(self) -> list[StoreDownload]:
        return await self._call("/downloads", _DOWNLOADS)

    async def catalogue(self) -> list[StoreModel]:
        """Every model that can be loaded."""
        return await self._call("/catalogue", _CATALOGUE)

    async def card(self, model_id: str) -> ModelCard:
        """A card made by the store host from a config.json that it has or can get."""
        return await self._call(f"/cards/{quote(model_id, safe='')}", _CARD)

    async def request_download(self, model_id: str) -> StoreDownloadAnswer:
        return await self._call(model_path(model_id, "download"), _DOWNLOAD, "POST")

    async def download_status(self, model_id: str) -> StoreDownloadAnswer:
        return await self._call(model_path(model_id, "download", "status"), _DOWNLOAD)

    async def delete(self, model_id: str) -> StoreDeleteAnswer:
        return await self._call(model_path(model_id), _DELETED, "DELETE")

    def in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work that waits for the store."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def while_reachable(self, work: Coroutine[None, None, T]) -> T:
        """Wait for the work as long as the store responds. Raises StoreUnreachableError."""
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({task}, timeout=PROBE_S))[0]:
                await self._send("/health", "GET", PROBE_S)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _call(self, path: str, response: TypeAdapter[T], method: str = "GET") -> T:
        document = await self.while_reachable(self._send(path, method, WORK_S))
        try:
            return response.validate_python(document)
        except ValidationError as error:
            raise DownloadError(f"invalid response of the store to {path}") from error

    async def _send(self, path: str, method: str, timeout_s: float) -> Any:
        address = await self.address()
        connection = StoreConnection(address)

        def work() -> Any:
            try:
                return connection.json(path, method)
            finally:
                connection.close()

        try:
            async with asyncio.timeout(timeout_s):
                return await self.in_thread(work)
        except TimeoutError:
            raise StoreUnreachableError(
                f"the store at {address} did not respond within {timeout_s:g} s",
                hint=CONNECT_HINT,
            ) from None
        finally:
            connection.abort()


@dataclass(frozen=True, slots=True)
class RemoteUploads:
    """Uploads that are passed on to the store host as they arrive; nothing is stored here."""

    client: StoreClient
    on_complete: Callable[[str], Awaitable[None]]
    target: UploadTarget = "store"

    async def begin(self, model_id: str, manifest: bytes, *, replace: bool) -> dict[str, int]:
        query = {"replace": str(int(replace))}
        response = await self._call("POST", model_id, query, io.BytesIO(manifest))
        received = response.get("received")
        return received if isinstance(received, dict) else {}

    async def write(
        self, model_id: str, path: str, offset: int, pieces: AsyncIterator[bytes]
    ) -> int:
        query = {"path": path, "offset": str(offset)}
        response = await self._call("PUT", model_id, query, pieces)
        return int(response.get("received", 0))

    async def commit(self, model_id: str, *, replace: bool) -> int:
        query = {"replace": str(int(replace)), "commit": "1"}
        response = await self._call("POST", model_id, query)
        await self.on_complete(model_id)
        return int(response.get("size", 0))

    async def abort(self, model_id: str) -> None:
        await self._call("DELETE", model_id, {})

    async def _call(
        self, method: str, model_id: str, query: dict[str, str], body: Any = None
    ) -> dict[str, Any]:
        return await self.client.while_reachable(self._send(method, model_id, query, body))

    async def _send(
        self, method: str, model_id: str, query: dict[str, str], body: Any
    ) -> dict[str, Any]:
        address = await self.client.address()
        url = f"{address}/uploads/{quote(model_id, safe='')}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=COMMIT_S)
        headers = {"Authorization": f"Bearer {address.token}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.request(
                    method, url, params=query, data=body, ssl=address.tls or True
                ) as response,
            ):
                status, raw = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise StoreUnreachableError(
                f"the store at {address} is unreachable: {error or type(error).__name__}",
                hint=CONNECT_HINT,
            ) from error
        return _read_upload_response(raw, status, address)


def _read_upload_response(raw: bytes, status: int, address: StoreAddress) -> dict[str, Any]:
    """The JSON of a response. Raises the StoreError that it carries."""
    try:
        document = json.loads(raw)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StoreError(f"the store at {address} does not accept uploads (HTTP {status})")
    if "kind" in document:
        error = _ERRORS.get(str(document["kind"]), StoreError)
        raise error(str(document.get("message")))
    return document
