"""One file from the store to the disk: resumed, verified, and only then renamed. Blocking.

Bytes are appended to `<file>.partial`. After a crash only the rest is requested. Nothing that a
store sends is trusted: neither its length, nor its range, nor its bytes.
"""

import hashlib
import http.client
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from skulkd.store.client.connection import RetryPolicy, StoreConnection, model_path
from skulkd.store.errors import (
    BadManifestError,
    DownloadError,
    StoreError,
    StoreUnreachableError,
)
from skulkd.store.manifest import PARTIAL, FileEntry

PIECE = 1 << 20
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")

OnBytes = Callable[[int], None]
"""Called with the bytes that were written; negative when some had to be discarded."""


class TransferCallbacks(NamedTuple):
    on_bytes: OnBytes
    on_retry: Callable[[str], None]
    """Called with the reason when another attempt follows."""


class TransferStopped(StoreError):
    """The transfer was cancelled."""

    kind = "stopped"


class _TransferFailed(DownloadError):
    """The response ended early or its bytes are wrong; another attempt may help."""


def fetch_file(
    connection: StoreConnection,
    model_id: str,
    entry: FileEntry,
    target: Path,
    callbacks: TransferCallbacks,
    *,
    stop: threading.Event,
    retry: RetryPolicy,
    known_sha256: str | None = None,
) -> str:
    """Fetch one file, or the rest of it; return its checksum. Raises StoreError or OSError.

    An entry without a checksum stays a partial file. Pass the returned checksum later as
    `known_sha256`, so that the bytes need not be read again.
    """
    failures = 0
    partial = _partial(target)
    while True:
        before = _size(partial)
        try:
            return _attempt(
                connection, model_id, entry, target, callbacks.on_bytes, stop, known_sha256
            )
        except (StoreUnreachableError, _TransferFailed) as error:
            failures = 1 if _size(partial) > before else failures + 1
            if stop.is_set():
                raise TransferStopped(f"staging of {model_id} was stopped") from error
            if failures >= retry.attempts:
                raise DownloadError(f"{entry.path} of {model_id}: {error}") from error
            attempt = f"attempt {failures} of {retry.attempts} failed"
            callbacks.on_retry(f"{entry.path}: {error} ({attempt})")
            stop.wait(retry.pause_s(failures))
            known_sha256 = None


def _attempt(
    connection: StoreConnection,
    model_id: str,
    entry: FileEntry,
    target: Path,
    on_bytes: OnBytes,
    stop: threading.Event,
    known_sha256: str | None,
) -> str:
    partial = _partial(target)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(partial, flags, 0o644)
    with os.fdopen(fd, "r+b", buffering=0) as file:
        complete = known_sha256 is not None and os.fstat(fd).st_size == entry.size
        digest, have = (None, entry.size) if complete else _hash_present(file, entry, on_bytes)
        resumed = have > 0
        if have < entry.size:
            response = _request(connection, model_id, entry, have)
            if response.status == 200 and have:
                # The store ignored the range: start again from the first byte.
                on_bytes(-have)
                file.truncate(0)
                file.seek(0)
                digest, have, resumed = hashlib.sha256(), 0, False
            _receive(connection, response, file, digest, entry.size - have, on_bytes, stop)
        found: str = str(known_sha256) if digest is None else digest.hexdigest()
        if entry.sha256 and found != entry.sha256:
            on_bytes(-entry.size)
            file.truncate(0)
            if resumed:
                raise _TransferFailed("the part of an earlier attempt was damaged")
            raise _wrong_checksum(model_id, entry, found)
        os.fsync(file.fileno())
    if entry.sha256:
        partial.replace(target)
    return found


def _hash_present(file: Any, entry: FileEntry, on_bytes: OnBytes) -> tuple[Any, int]:
    """The checksum of the part that an earlier attempt left, and its size."""
    digest = hashlib.sha256()
    size = os.fstat(file.fileno()).st_size
    if size > entry.size:
        on_bytes(-size)
        file.truncate(0)
        return digest, 0
    buffer = bytearray(PIECE)
    view = memoryview(buffer)
    while count := file.readinto(buffer):
        digest.update(view[:count])
    return digest, size


def _request(
    connection: StoreConnection, model_id: str, entry: FileEntry, have: int
) -> http.client.HTTPResponse:
    headers = {"Range": f"bytes={have}-"} if have else {}
    response = connection.request(model_path(model_id, entry.path), headers=headers)
    length = response.length
    expected = entry.size - have if response.status == 206 else entry.size
    if response.status == 206:
        found = _RANGE.fullmatch(response.getheader("Content-Range") or "")
        sent = None if found is None else tuple(map(int, found.groups()))
        if sent != (have, entry.size - 1, entry.size):
            connection.close()
            raise _mismatch(entry, f"bytes {have} to {entry.size - 1} requested, others sent")
    if response.status not in (200, 206) or length != expected:
        connection.close()
        raise _mismatch(entry, f"{expected} bytes expected, {length} announced")
    return response


def _receive(
    connection: StoreConnection,
    response: http.client.HTTPResponse,
    file: Any,
    digest: Any,
    left: int,
    on_bytes: OnBytes,
    stop: threading.Event,
) -> None:
    while left:
        if stop.is_set():
            connection.close()
            raise _TransferFailed("stopped")
        try:
            # One read of the socket: a stall must not lose the bytes that came before it.
            piece = response.read1(min(left, PIECE))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            why = "timed out" if isinstance(error, TimeoutError) else str(error)
            raise _TransferFailed(f"connection lost: {why}") from error
        if not piece:
            connection.close()
            raise _TransferFailed(f"connection closed {left} bytes early")
        digest.update(piece)
        _write_all(file, memoryview(piece))
        left -= len(piece)
        on_bytes(len(piece))
    connection.finish(response)


def _write_all(file: Any, piece: memoryview) -> None:
    while piece:
        piece = piece[file.write(piece) :]


def _partial(target: Path) -> Path:
    return target.with_name(target.name + PARTIAL)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _wrong_checksum(model_id: str, entry: FileEntry, found: str) -> BadManifestError:
    return BadManifestError(
        f"{entry.path} of {model_id} does not match the store's manifest:"
        f" its sha256 is {found[:12]}…, not {entry.sha256[:12]}…",
        hint="the store's disk may be damaged; check the file on the store host",
    )


def _mismatch(entry: FileEntry, what: str) -> BadManifestError:
    return BadManifestError(f"the store does not follow its manifest: {entry.path}: {what}")
