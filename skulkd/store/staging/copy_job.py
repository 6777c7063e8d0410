"""Copies one model from the store into the staging area. Blocking, for a thread.

Checks the space first, fetches files in parallel and writes the completion marker last. After an
interruption the copy is incomplete, and the next attempt continues it.
"""

import errno
import json
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

from skulkd.settings.files import write_atomic
from skulkd.store.client.connection import (
    DEFAULT_RETRY,
    RetryPolicy,
    StoreAddress,
    StoreConnection,
    StoreHttpError,
)
from skulkd.store.errors import FileAccessError, NoSpaceError, UnknownModelError
from skulkd.store.host.checksums import sha256_of
from skulkd.store.manifest import (
    PARTIAL,
    FileEntry,
    Manifest,
    parse_listing,
    parse_manifest,
)
from skulkd.store.staging.area import StagingArea
from skulkd.store.staging.progress import CopyProgress
from skulkd.store.staging.transfer import TransferCallbacks, TransferStopped, fetch_file

PARALLEL_FILES = 4
CHECKSUMS_S = 1.0
"""How long the store may compute checksums before copying begins without them."""
SPARE_BYTES = 64 << 20
MANIFEST_FILE = ".manifest.json"
_GIB = 1024**3


@dataclass(slots=True)
class CopyJob(CopyProgress):
    """Progress of a copy and the connections it uses; `stop` ends it from any thread."""

    received_bytes: int = 0
    sha256: dict[str, str] = field(default_factory=dict)
    """Checksums of files that were received before the store's own were known."""
    stopped: threading.Event = field(default_factory=threading.Event)
    _connections: list[StoreConnection] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self) -> None:
        self.stopped.set()
        with self._lock:
            for connection in self._connections:
                connection.abort()

    def connect(self, address: StoreAddress, silence_s: float) -> StoreConnection:
        """A connection that `stop` aborts."""
        connection = StoreConnection(address, silence_s)
        with self._lock:
            self._connections.append(connection)
        if self.stopped.is_set():
            connection.abort()
        return connection

    def begin(self, manifest: Manifest) -> None:
        self.total_bytes, self.sizes = manifest.total_bytes, manifest.sizes

    def add_bytes(self, path: str, count: int) -> None:
        with self._lock:
            self.done_bytes += count
            self.received_bytes += count
            self.retry_reason = None if count > 0 else self.retry_reason
            self.file_bytes[path] = self.file_bytes.get(path, 0) + count

    def set_present(self, file_bytes: Mapping[str, int], done_files: int) -> None:
        """What is on the disk, from an earlier attempt or from this job."""
        with self._lock:
            self.file_bytes, self.done_files = dict(file_bytes), done_files
            self.done_bytes = sum(file_bytes.values())
            self.present_bytes = max(0, self.done_bytes - self.received_bytes)

    def set_retrying(self, reason: str) -> None:
        self.retry_reason = reason

    def file_done(self) -> None:
        with self._lock:
            self.done_files += 1


def fetch_manifest(
    address: StoreAddress, model_id: str, job: CopyJob, retry: RetryPolicy
) -> Manifest:
    """The store's manifest of a model; waits while checksums are computed. Raises StoreError."""
    with closing(job.connect(address, retry.silence_s)) as connection:
        while True:
            try:
                document = connection.json(f"/manifests/{quote(model_id, safe='')}")
            except StoreHttpError as error:
                if error.status != 503 or job.stopped.is_set():
                    raise
                job.hashed = _hashing_progress(error.body)
                job.total_bytes = job.hashed[1] if job.hashed else job.total_bytes
                job.stopped.wait(retry.pause_s(2))
            else:
                job.hashed = None
                return parse_manifest(json.dumps(document).encode(), model_id)


def copy_from_store(
    area: StagingArea,
    address: StoreAddress,
    model_id: str,
    job: CopyJob,
    *,
    freeable: Callable[[], int] = lambda: 0,
    retry: RetryPolicy = DEFAULT_RETRY,
) -> Path:
    """As `copy_model`; begins to copy while the store computes checksums."""
    with ThreadPoolExecutor(1, thread_name_prefix="manifest") as pool:
        manifest = pool.submit(fetch_manifest, address, model_id, job, retry)
        try:
            if not wait({manifest}, timeout=CHECKSUMS_S).done:
                _copy_early(area, address, model_id, job, freeable, retry)
            found = manifest.result()
        except BaseException:
            job.stop()  # ends the thread of the pool, too
            raise
    return copy_model(area, address, found, job, freeable=freeable, retry=retry)


def _copy_early(
    area: StagingArea,
    address: StoreAddress,
    model_id: str,
    job: CopyJob,
    freeable: Callable[[], int],
    retry: RetryPolicy,
) -> None:
    """Fetch the bytes of a new copy; its files are partial until they are verified."""
    path = area.path_of(model_id)
    listing = _fetch_listing(address, model_id, job, retry)
    if listing is None or (path.exists() and any(path.iterdir())):
        return  # what an earlier attempt left can only be used with checksums
    with _locked_copy(area, path, listing):
        job.begin(listing)
        _require_space(path, listing.total_bytes, listing, freeable)
        _fetch_all(address, listing, path, list(listing.files), job, retry)


def _fetch_listing(
    address: StoreAddress, model_id: str, job: CopyJob, retry: RetryPolicy
) -> Manifest | None:
    """The files of a model without checksums; None from a store without this route."""
    with closing(job.connect(address, retry.silence_s)) as connection:
        try:
            document = connection.json(f"/listings/{quote(model_id, safe='')}")
        except (UnknownModelError, StoreHttpError):
            return None
    return parse_listing(json.dumps(document).encode(), model_id)


@contextmanager
def _locked_copy(area: StagingArea, path: Path, manifest: Manifest) -> Iterator[None]:
    """Lock the directory of a copy. Turns OSError into StoreError; a full disk loses the copy."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with area.locked(path.name):
            yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(area, path, manifest) from error
        raise FileAccessError.of(error, path) from error


def copy_model(
    area: StagingArea,
    address: StoreAddress,
    manifest: Manifest,
    job: CopyJob,
    *,
    freeable: Callable[[], int] = lambda: 0,
    retry: RetryPolicy = DEFAULT_RETRY,
) -> Path:
    """The directory of the complete copy. Raises StoreError; BusyError if another process copies.

    `freeable` returns how much a purge of staged copies would free, for the error message.
    """
    path = area.path_of(manifest.model_id)
    with _locked_copy(area, path, manifest):
        if area.is_complete(manifest.model_id) and _saved_manifest(path) == _encoded(manifest):
            return path
        missing = _prepare(area, path, manifest, job)
        _require_space(path, sum(size for _, size in missing), manifest, freeable)
        _fetch_all(address, manifest, path, [entry for entry, _ in missing], job, retry)
        area.mark_complete(manifest.model_id, manifest.sizes)
    return path


def _prepare(
    area: StagingArea, path: Path, manifest: Manifest, job: CopyJob
) -> list[tuple[FileEntry, int]]:
    """Keep what an earlier attempt verified; return the missing files and their missing bytes."""
    area.unmark(manifest.model_id)
    same = _saved_manifest(path) == _encoded(manifest)
    _remove_other_files(path, manifest)
    job.begin(manifest)
    missing: list[tuple[FileEntry, int]] = []
    present: dict[str, int] = {}
    for entry in manifest.files:
        file = path / entry.path
        # A file with its final name was verified, against this manifest or an older one.
        if _size(file) == entry.size and (same or sha256_of(file) == entry.sha256):
            present[entry.path] = entry.size
            continue
        file.unlink(missing_ok=True)
        have = min(_size(file.with_name(file.name + PARTIAL)) or 0, entry.size)
        present[entry.path] = have
        missing.append((entry, entry.size - have))
    job.set_present(present, len(manifest.files) - len(missing))
    if not same:
        write_atomic(path / MANIFEST_FILE, _encoded(manifest))
    return missing


def _remove_other_files(path: Path, manifest: Manifest) -> None:
    """Delete files of an older version of the model; hidden files are our own and stay."""
    wanted = {entry.path for entry in manifest.files}
    for file in list(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        other = name.removesuffix(PARTIAL) not in wanted and not name.startswith(".")
        if file.is_symlink() or (file.is_file() and other):
            file.unlink()


def _require_space(
    path: Path, needed: int, manifest: Manifest, freeable: Callable[[], int]
) -> None:
    free = shutil.disk_usage(path).free
    if needed + SPARE_BYTES <= free or not needed:
        return
    short = needed + SPARE_BYTES - free
    could = freeable()
    purge = f"purging unused staged models would free {_gib(could)}"
    enough = "" if could >= short else ", which is not enough"
    raise NoSpaceError(
        f"staging {manifest.model_id} needs {_gib(needed)} more and {_gib(SPARE_BYTES)} to spare in"
        f" {path.parent}, {_gib(free)} are free: {_gib(short)} short; {purge}{enough}",
        hint="skulkctl purge-staging --dry-run" if could else "skulkctl storage",
    )


def _fetch_all(
    address: StoreAddress,
    manifest: Manifest,
    path: Path,
    missing: list[FileEntry],
    job: CopyJob,
    retry: RetryPolicy,
) -> None:
    """Fetch files in parallel, the largest first, so that no large one is left for the end."""
    pending = deque(sorted(missing, key=lambda entry: -entry.size))
    for entry in pending:
        (path / entry.path).parent.mkdir(parents=True, exist_ok=True)

    def work() -> None:
        with closing(job.connect(address, retry.silence_s)) as connection:
            while not job.stopped.is_set() and (entry := _pop(pending)) is not None:
                job.sha256[entry.path] = fetch_file(
                    connection,
                    manifest.model_id,
                    entry,
                    path / entry.path,
                    TransferCallbacks(partial(job.add_bytes, entry.path), job.set_retrying),
                    stop=job.stopped,
                    retry=retry,
                    known_sha256=job.sha256.get(entry.path),
                )
                job.file_done()

    workers = min(PARALLEL_FILES, len(missing))
    if workers:
        with ThreadPoolExecutor(workers, thread_name_prefix="stage") as pool:
            futures = [pool.submit(work) for _ in range(workers)]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [future for future in done if future.exception() is not None]
            if failed:
                job.stop()
                failed[0].result()
    if job.stopped.is_set():
        raise TransferStopped(f"staging of {manifest.model_id} was stopped")


def _pop(pending: deque[FileEntry]) -> FileEntry | None:
    try:
        return pending.popleft()
    except IndexError:
        return None  # another thread took the last one


def _disk_full(area: StagingArea, path: Path, manifest: Manifest) -> NoSpaceError:
    """Remove the incomplete copy: a full disk is worse than copying again."""
    freed = area.remove(path.name)
    return NoSpaceError(
        f"the disk of {area.root} became full while {manifest.model_id} was staged; the"
        f" incomplete copy was removed, which frees {_gib(freed)}",
        hint="skulkctl storage",
    )


def _encoded(manifest: Manifest) -> bytes:
    files = [[entry.path, entry.size, entry.sha256] for entry in manifest.files]
    return json.dumps(files).encode()


def _saved_manifest(path: Path) -> bytes:
    try:
        return (path / MANIFEST_FILE).read_bytes()
    except OSError:
        return b""


def _size(path: Path) -> int | None:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return None


def _hashing_progress(body: str) -> tuple[int, int] | None:
    try:
        document = json.loads(body)
        return int(document["hashed_bytes"]), int(document["total_bytes"])
    except (ValueError, KeyError, TypeError):
        return None


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.2f} GiB"
