"""Uploads of models, file by file, into a directory of this machine.

An upload is stored in a hidden directory and renamed when it is complete. Names, sizes and
checksums are those of the manifest it began with; nothing else is written. An interrupted upload
is continued by the next one of the same files.
"""

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from skulkd.settings.files import write_atomic
from skulkd.store.atomic_directory import refuse_existing, rename_into_place, require_space
from skulkd.store.errors import (
    BadManifestError,
    BrokenModelError,
    BusyError,
    FileAccessError,
    UnknownModelError,
    UploadOffsetError,
)
from skulkd.store.host.checksums import sha256_of
from skulkd.store.manifest import PARTIAL, FileEntry, Manifest, parse_manifest
from skulkd.store.model_directory import CONFIG_FILE, inspect_directory
from skulkd.store.model_ids import check_model_id, directory_name
from skulkd.wire.uploads import UploadTarget

UPLOADING = ".uploading-"
MANIFEST = ".upload.json"
MOST_UPLOADS = 8
STALE_S = 24 * 3600.0
# Data only: no programs in a models directory.
SUFFIXES = frozenset(
    {".json", ".jinja", ".txt", ".model", ".tiktoken", ".safetensors", ".toml", ".md"}
)


class UploadFiles:
    """Uploads into one directory of models. Every method raises StoreError."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def begin(self, manifest: Manifest, *, replace: bool) -> dict[str, int]:
        """Start or resume; bytes by path that were received already."""
        _check_names(manifest)
        refuse_existing(self.root, manifest.model_id, replace=replace)
        scratch = self._scratch(manifest.model_id)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if self._read(scratch) != _document(manifest):
                shutil.rmtree(scratch, ignore_errors=True)
            self._make_room_for(scratch)
            received = {entry.path: _received(scratch, entry) for entry in manifest.files}
            require_space(self.root, manifest.total_bytes - sum(received.values()))
            scratch.mkdir(exist_ok=True)
            write_atomic(scratch / MANIFEST, json.dumps(_document(manifest)).encode())
        except OSError as error:
            raise FileAccessError.of(error, self.root) from error
        return received

    def open(self, model_id: str, path: str, offset: int) -> tuple[int, FileEntry]:
        """A file descriptor to write at `offset`, and the file's manifest entry."""
        scratch = self._scratch(model_id)
        entry = self._entry(model_id, path)
        there = _received(scratch, entry)
        if offset != there:
            raise UploadOffsetError(f"{path} continues at byte {there}, not at {offset}")
        target = scratch / f"{path}{PARTIAL}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(target, flags, 0o644), entry
        except OSError as error:
            raise FileAccessError.of(error, target) from error

    def finish(self, model_id: str, entry: FileEntry) -> int:
        """Verify a file that has all its bytes; return the bytes received."""
        scratch = self._scratch(model_id)
        partial = scratch / f"{entry.path}{PARTIAL}"
        try:
            size = partial.stat().st_size
            if size < entry.size:
                return size
            if sha256_of(partial) != entry.sha256:
                partial.unlink()
                raise BrokenModelError(f"{entry.path} is damaged: its sha256 is wrong")
            partial.rename(scratch / entry.path)
        except OSError as error:
            raise FileAccessError.of(error, partial) from error
        return entry.size

    def commit(self, model_id: str, *, replace: bool) -> int:
        """Give a complete model its name; return its size."""
        scratch = self._scratch(model_id)
        manifest = self._manifest(model_id)
        missing = [e.path for e in manifest.files if not (scratch / e.path).is_file()]
        if missing:
            raise BrokenModelError(f"{missing[0]} of {model_id} is missing")
        inspect_directory(scratch)
        try:
            target = self.root / directory_name(model_id)
            rename_into_place(scratch, target, model_id, replace=replace)
            (target / MANIFEST).unlink()
        except OSError as error:
            raise FileAccessError.of(error, scratch) from error
        return manifest.total_bytes

    def abort(self, model_id: str) -> None:
        """Delete what was received."""
        self._manifest(model_id)
        shutil.rmtree(self._scratch(model_id), ignore_errors=True)

    def _scratch(self, model_id: str) -> Path:
        return self.root / f"{UPLOADING}{directory_name(model_id)}"

    def _manifest(self, model_id: str) -> Manifest:
        raw = self._read(self._scratch(model_id))
        if raw is None:
            raise UnknownModelError(f"no upload of {check_model_id(model_id)} has begun")
        return parse_manifest(json.dumps(raw).encode(), model_id, "the upload")

    def _entry(self, model_id: str, path: str) -> FileEntry:
        for entry in self._manifest(model_id).files:
            if entry.path == path:
                return entry
        raise UnknownModelError(f"{path!r:.200} is not among the files of this upload")

    def _read(self, scratch: Path) -> object:
        try:
            return json.loads((scratch / MANIFEST).read_bytes())
        except (OSError, ValueError):
            return None

    def _make_room_for(self, scratch: Path) -> None:
        """Delete uploads without progress for a day, and limit how many there are."""
        others = [path for path in self.root.glob(f"{UPLOADING}*") if path != scratch]
        fresh = []
        for path in others:
            with contextlib.suppress(OSError):
                if time.time() - (path / MANIFEST).stat().st_mtime < STALE_S:
                    fresh.append(path)
                    continue
            shutil.rmtree(path, ignore_errors=True)
        if len(fresh) >= MOST_UPLOADS:
            raise BusyError(f"{len(fresh)} uploads are incomplete; finish or cancel one first")


def _document(manifest: Manifest) -> dict[str, object]:
    document: dict[str, object] = json.loads(manifest.to_json())
    return document


def _received(scratch: Path, entry: FileEntry) -> int:
    for name in (entry.path, f"{entry.path}{PARTIAL}"):
        with contextlib.suppress(OSError):
            return min((scratch / name).lstat().st_size, entry.size)
    return 0


def _check_names(manifest: Manifest) -> None:
    names: Mapping[str, int] = manifest.sizes
    for name in names:
        if PurePosixPath(name).suffix.lower() not in SUFFIXES:
            raise BadManifestError(
                f"{name} cannot be uploaded: only {', '.join(sorted(SUFFIXES))} files are accepted"
            )
    if CONFIG_FILE not in names:
        raise BadManifestError(f"the upload has no {CONFIG_FILE}")


class Uploads(Protocol):
    """Into this machine (`LocalUploads`) or to the store host (`RemoteUploads`).

    Nothing is visible before `commit`. Every method raises StoreError.
    """

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
    """Uploads into a directory of this machine."""

    files: UploadFiles
    target: UploadTarget
    on_complete: Callable[[str], Awaitable[None]]
    in_use_reason: Callable[[str], str | None] = lambda model_id: None
    busy: set[str] = field(default_factory=set)
    """Models that a request is working on."""

    async def begin(self, model_id: str, manifest: bytes, *, replace: bool) -> dict[str, int]:
        parsed: Manifest = parse_manifest(manifest, model_id, "the upload")
        self._check_free(model_id, replace=replace)
        async with self._exclusive(model_id):
            return await asyncio.to_thread(self.files.begin, parsed, replace=replace)

    async def write(
        self, model_id: str, path: str, offset: int, pieces: AsyncIterator[bytes]
    ) -> int:
        async with self._exclusive(model_id):
            fd, entry = await asyncio.to_thread(self.files.open, model_id, path, offset)
            try:
                at = offset
                async for piece in pieces:
                    if at + len(piece) > entry.size:
                        raise BadManifestError(f"{path} is longer than its {entry.size} bytes")
                    await asyncio.to_thread(_write_all, fd, piece, at)
                    at += len(piece)
            except OSError as error:
                raise FileAccessError.of(error, self.files.root) from error
            finally:
                os.close(fd)
            return await asyncio.to_thread(self.files.finish, model_id, entry)

    async def commit(self, model_id: str, *, replace: bool) -> int:
        self._check_free(model_id, replace=replace)
        async with self._exclusive(model_id):
            size_bytes = await asyncio.to_thread(self.files.commit, model_id, replace=replace)
        await self.on_complete(model_id)
        return size_bytes

    async def abort(self, model_id: str) -> None:
        async with self._exclusive(model_id):
            await asyncio.to_thread(self.files.abort, model_id)

    def _check_free(self, model_id: str, *, replace: bool) -> None:
        reason = self.in_use_reason(model_id) if replace else None
        if reason is not None:
            raise BusyError(f"{model_id} is in use: {reason}")

    @asynccontextmanager
    async def _exclusive(self, model_id: str) -> AsyncIterator[None]:
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
