"""One file from the store to the disk: resumed, verified, and only then under its name. Blocking.

Bytes grow in `<file>.partial`. A process that is killed leaves it behind, and the next one asks
only for the rest. Nothing a store sends is trusted: not its length, not its range, not its bytes.
"""

import hashlib
import http.client
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from skulkd.store.errors import BadManifestError, DownloadError, StoreError
from skulkd.store.errors import StoreUnreachableError as Unreachable
from skulkd.store.manifest import PARTIAL, FileEntry
from skulkd.store.store_link import StoreLink, model_path

PIECE = 1 << 20
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a file is tried without a new byte, and how long silence and pauses may be."""

    attempts: int = 5
    silence_s: float = 30.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 8.0

    def pause_s(self, failures: int) -> float:
        return float(min(self.first_pause_s * 2 ** max(0, failures - 1), self.longest_pause_s))


USUAL_PATIENCE = Patience()


class Stopped(StoreError):
    """Somebody wants this transfer to end."""

    kind = "stopped"


Tell = Callable[[int], None]
"""Hears of bytes that are on disk now; negative when some had to be thrown away."""


class Listener(NamedTuple):
    """Who hears of a transfer: of its bytes, and why an attempt failed when another follows."""

    moved: Tell
    retrying: Callable[[str], None]


def fetch_file(
    link: StoreLink,
    model_id: str,
    entry: FileEntry,
    target: Path,
    listener: Listener,
    *,
    stop: threading.Event,
    patience: Patience,
    known_sha256: str | None = None,
) -> str:
    """Bring one file, whatever is there of it already. Raises StoreError or OSError.

    An entry without a checksum stays unfinished on the disk; the checksum that is returned may be
    given later as `known_sha256`, so that the bytes need not be read again.
    """
    failures = 0
    while True:
        before = _size(_partial(target))
        try:
            return _attempt(link, model_id, entry, target, listener.moved, stop, known_sha256)
        except (Unreachable, _Broken) as error:
            failures = 1 if _size(_partial(target)) > before else failures + 1
            if stop.is_set():
                raise Stopped(f"staging of {model_id} was stopped") from error
            if failures >= patience.attempts:
                raise DownloadError(f"{entry.path} of {model_id}: {error}") from error
            tried = f"attempt {failures} of {patience.attempts} failed"
            listener.retrying(f"{entry.path}: {error} ({tried})")
            stop.wait(patience.pause_s(failures))
            known_sha256 = None


class _Broken(DownloadError):
    """The answer ended early or its bytes are wrong; another attempt may help."""


def _attempt(
    link: StoreLink,
    model_id: str,
    entry: FileEntry,
    target: Path,
    tell: Tell,
    stop: threading.Event,
    known_sha256: str | None,
) -> str:
    partial = _partial(target)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(partial, flags, 0o644)
    with os.fdopen(fd, "r+b", buffering=0) as file:
        whole = known_sha256 is not None and os.fstat(fd).st_size == entry.size
        digest, have = (None, entry.size) if whole else _hash_present(file, entry, tell)
        resumed = have > 0
        if have < entry.size:
            answer = _ask(link, model_id, entry, have)
            if answer.status == 200 and have:
                # The store ignores ranges: what is there would be written twice.
                tell(-have)
                file.truncate(0)
                file.seek(0)
                digest, have, resumed = hashlib.sha256(), 0, False
            _receive(link, answer, file, digest, entry.size - have, tell, stop)
        found: str = str(known_sha256) if digest is None else digest.hexdigest()
        if entry.sha256 and found != entry.sha256:
            tell(-entry.size)
            file.truncate(0)
            if resumed:
                raise _Broken("what was there of it before was damaged")
            raise BadManifestError(
                f"{entry.path} of {model_id} is not what the store's manifest says:"
                f" its sha256 is {found[:12]}…, not {entry.sha256[:12]}…",
                hint="the store's disk or the store itself is broken; check it on its host",
            )
        os.fsync(file.fileno())
    if entry.sha256:
        partial.replace(target)
    return found


def _hash_present(file: Any, entry: FileEntry, tell: Tell) -> tuple[Any, int]:
    """The checksum so far of what an earlier attempt left."""
    digest = hashlib.sha256()
    size = os.fstat(file.fileno()).st_size
    if size > entry.size:
        tell(-size)
        file.truncate(0)
        return digest, 0
    buffer = bytearray(PIECE)
    view = memoryview(buffer)
    while count := file.readinto(buffer):
        digest.update(view[:count])
    return digest, size


def _ask(link: StoreLink, model_id: str, entry: FileEntry, have: int) -> http.client.HTTPResponse:
    headers = {"Range": f"bytes={have}-"} if have else {}
    answer = link.ask(model_path(model_id, entry.path), headers=headers)
    length = answer.length
    expected = entry.size - have if answer.status == 206 else entry.size
    if answer.status == 206:
        found = _RANGE.fullmatch(answer.getheader("Content-Range") or "")
        told = None if found is None else tuple(map(int, found.groups()))
        if told != (have, entry.size - 1, entry.size):
            link.drop()
            raise _lie(entry, f"asked for bytes {have} to {entry.size - 1}, it sends others")
    if answer.status not in (200, 206) or length != expected:
        link.drop()
        raise _lie(entry, f"{expected} bytes are expected, it announces {length}")
    return answer


def _receive(
    link: StoreLink,
    answer: http.client.HTTPResponse,
    file: Any,
    digest: Any,
    left: int,
    tell: Tell,
    stop: threading.Event,
) -> None:
    while left:
        if stop.is_set():
            link.drop()
            raise _Broken("stopped")
        try:
            # What one look at the socket gives: a stall must not lose what came before it.
            piece = answer.read1(min(left, PIECE))
        except (OSError, http.client.HTTPException) as error:
            link.drop()
            why = "nothing came for too long" if isinstance(error, TimeoutError) else str(error)
            raise _Broken(f"the connection broke: {why}") from error
        if not piece:
            link.drop()
            raise _Broken(f"the connection ended {left} bytes early")
        digest.update(piece)
        _write_all(file, memoryview(piece))
        left -= len(piece)
        tell(len(piece))
    link.finish(answer)


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


def _lie(entry: FileEntry, what: str) -> BadManifestError:
    return BadManifestError(f"the store does not keep to its manifest: {entry.path}: {what}")
