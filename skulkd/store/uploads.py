"""Where an upload goes: a directory of this machine, or the store host, which does the same.

`Uploads` is what handlers use. Both sides keep every byte out of sight until `commit`.
"""

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import aiohttp

from skulkd.store import errors
from skulkd.store.errors import BadManifestError, BusyError, StoreError, StoreUnreachableError
from skulkd.store.manifest import Manifest, parse_manifest
from skulkd.store.store_calls import StoreCalls
from skulkd.store.store_link import StoreAddress
from skulkd.store.upload_files import UploadFiles
from skulkd.wire.uploads import UploadTarget

CONNECT_S = 10.0
COMMIT_S = 600.0
_KINDS = {
    kind.kind: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, StoreError)
    and kind.__init__ is StoreError.__init__
}


class Uploads(Protocol):
    """Takes a model file by file. Every method raises StoreError."""

    @property
    def target(self) -> UploadTarget: ...

    async def begin(self, model_id: str, manifest: bytes, *, replace: bool) -> dict[str, int]: ...

    async def write(
        self, model_id: str, path: str, offset: int, pieces: AsyncIterator[bytes]
    ) -> int: ...

    async def commit(self, model_id: str, *, replace: bool) -> int: ...

    async def abort(self, model_id: str) -> None: ...


@dataclass(slots=True)
class LocalUploads:
    """Into a directory of this machine. `held` says why a model must not be replaced now."""

    files: UploadFiles
    target: UploadTarget
    arrived: Callable[[str], Awaitable[None]]
    held: Callable[[str], str | None] = lambda model_id: None
    busy: set[str] = field(default_factory=set)
    """Models that a request is working on."""

    async def begin(self, model_id: str, manifest: bytes, *, replace: bool) -> dict[str, int]:
        parsed: Manifest = parse_manifest(manifest, model_id, "the upload")
        self._check_free(model_id, replace=replace)
        async with self._alone(model_id):
            return await asyncio.to_thread(self.files.begin, parsed, replace=replace)

    async def write(
        self, model_id: str, path: str, offset: int, pieces: AsyncIterator[bytes]
    ) -> int:
        async with self._alone(model_id):
            fd, entry = await asyncio.to_thread(self.files.open, model_id, path, offset)
            try:
                at = offset
                async for piece in pieces:
                    if at + len(piece) > entry.size:
                        raise BadManifestError(f"{path} is longer than the {entry.size} bytes said")
                    await asyncio.to_thread(_write_all, fd, piece, at)
                    at += len(piece)
            except OSError as error:
                raise errors.FileAccessError.of(error, self.files.root) from error
            finally:
                os.close(fd)
            return await asyncio.to_thread(self.files.finish, model_id, entry)

    async def commit(self, model_id: str, *, replace: bool) -> int:
        self._check_free(model_id, replace=replace)
        async with self._alone(model_id):
            size_bytes = await asyncio.to_thread(self.files.commit, model_id, replace=replace)
        await self.arrived(model_id)
        return size_bytes

    async def abort(self, model_id: str) -> None:
        async with self._alone(model_id):
            await asyncio.to_thread(self.files.abort, model_id)

    def _check_free(self, model_id: str, *, replace: bool) -> None:
        held = self.held(model_id) if replace else None
        if held is not None:
            raise BusyError(f"{model_id} is in use: {held}")

    @asynccontextmanager
    async def _alone(self, model_id: str) -> AsyncIterator[None]:
        if model_id in self.busy:
            raise BusyError(f"another client is uploading {model_id} right now")
        self.busy.add(model_id)
        try:
            yield
        finally:
            self.busy.discard(model_id)


def _write_all(fd: int, piece: bytes, at: int) -> None:
    view = memoryview(piece)
    while view:
        count = os.pwrite(fd, view, at)
        view, at = view[count:], at + count


@dataclass(frozen=True, slots=True)
class RemoteUploads:
    """Passed on to the store host while it arrives; nothing is kept here."""

    calls: StoreCalls
    arrived: Callable[[str], Awaitable[None]]
    target: UploadTarget = "store"

    async def begin(self, model_id: str, manifest: bytes, *, replace: bool) -> dict[str, int]:
        query = {"replace": str(int(replace))}
        answer = await self._ask("POST", model_id, query, io.BytesIO(manifest))
        received = answer.get("received")
        return received if isinstance(received, dict) else {}

    async def write(
        self, model_id: str, path: str, offset: int, pieces: AsyncIterator[bytes]
    ) -> int:
        query = {"path": path, "offset": str(offset)}
        answer = await self._ask("PUT", model_id, query, pieces)
        return int(answer.get("received", 0))

    async def commit(self, model_id: str, *, replace: bool) -> int:
        query = {"replace": str(int(replace)), "commit": "1"}
        answer = await self._ask("POST", model_id, query)
        await self.arrived(model_id)
        return int(answer.get("size", 0))

    async def abort(self, model_id: str) -> None:
        await self._ask("DELETE", model_id, {})

    async def _ask(
        self, method: str, model_id: str, query: dict[str, str], body: Any = None
    ) -> dict[str, Any]:
        return await self.calls.while_reachable(self._send(method, model_id, query, body))

    async def _send(
        self, method: str, model_id: str, query: dict[str, str], body: Any
    ) -> dict[str, Any]:
        address = await self.calls.address()
        url = f"{address}/uploads/{quote(model_id, safe='')}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=COMMIT_S)
        headers = {"Authorization": f"Bearer {address.token}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.request(
                    method, url, params=query, data=body, ssl=address.tls or True
                ) as answer,
            ):
                status, raw = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise StoreUnreachableError(
                f"the store at {address} cannot be used: {error or type(error).__name__}",
                hint="is skulkd running on the store host, and its port open?",
            ) from error
        return _answered(raw, status, address)


def _answered(raw: bytes, status: int, address: StoreAddress) -> dict[str, Any]:
    """The JSON of an answer. Raises the StoreError that it stands for."""
    try:
        document = json.loads(raw)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StoreError(f"the store at {address} takes no uploads (HTTP {status})")
    if "kind" in document:
        kind = _KINDS.get(str(document["kind"]), StoreError)
        raise kind(str(document.get("message")))
    return document
