"""One model from the store into the staging area: room first, files in parallel, the mark last.

Blocking, for a thread. Whatever interrupts it, the directory is not whole until every file was
verified, and the next attempt takes up where this one ended.
"""

import errno
import json
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

from skulkd.settings.files import write_atomic
from skulkd.store.errors import FileAccessError, NoSpaceError, UnknownModelError
from skulkd.store.manifest import (
    PARTIAL,
    FileEntry,
    Manifest,
    parse_listing,
    parse_manifest,
)
from skulkd.store.shelf_files import sha256_of
from skulkd.store.staging_area import StagingArea
from skulkd.store.store_link import StoreAddress, StoreLink, StoreRefused
from skulkd.store.transfer import USUAL_PATIENCE, Listener, Patience, Stopped, fetch_file

PARALLEL_FILES = 4
CHECKSUMS_S = 1.0
"""So long a store may compute checksums before copying begins without them."""
SPARE_BYTES = 64 << 20
MANIFEST_NOTE = ".manifest.json"
_GIB = 1024**3


@dataclass(slots=True)
class StageJob:
    """How far a staging is, for whoever shows it; `stop` ends it from any thread."""

    total_bytes: int = 0
    total_files: int = 0
    present_bytes: int = 0
    """What was there when it began."""
    done_bytes: int = 0
    done_files: int = 0
    file_bytes: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    hashed: tuple[int, int] | None = None
    """While the store host computes checksums: bytes it has read, and bytes of the model."""
    received_bytes: int = 0
    """What this job itself has brought."""
    sha256: dict[str, str] = field(default_factory=dict)
    """Checksums of files that were received before the store told its own."""
    trouble: str | None = None
    """Why the last attempt to get bytes failed; None as soon as some come."""
    stopped: threading.Event = field(default_factory=threading.Event)
    _links: list[StoreLink] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self) -> None:
        self.stopped.set()
        with self._lock:
            for link in self._links:
                link.cut()

    def link(self, address: StoreAddress, silence_s: float) -> StoreLink:
        """A connection that `stop` cuts, too."""
        link = StoreLink(address, silence_s)
        with self._lock:
            self._links.append(link)
        if self.stopped.is_set():
            link.cut()
        return link

    def add(self, path: str, count: int) -> None:
        with self._lock:
            self.done_bytes += count
            self.received_bytes += count
            self.trouble = None if count > 0 else self.trouble
            self.file_bytes[path] = self.file_bytes.get(path, 0) + count

    def found(self, file_bytes: Mapping[str, int], done_files: int) -> None:
        """What is on the disk, of an earlier attempt or brought by this job."""
        with self._lock:
            self.file_bytes, self.done_files = dict(file_bytes), done_files
            self.done_bytes = sum(file_bytes.values())
            self.present_bytes = max(0, self.done_bytes - self.received_bytes)

    def failed(self, why: str) -> None:
        """Another attempt follows."""
        self.trouble = why

    def file_done(self) -> None:
        with self._lock:
            self.done_files += 1


def fetch_manifest(
    address: StoreAddress, model_id: str, job: StageJob, patience: Patience
) -> Manifest:
    """What the store says of a model; waits while it computes checksums. Raises StoreError."""
    link = job.link(address, patience.silence_s)
    try:
        while True:
            try:
                document = link.json(f"/manifests/{quote(model_id, safe='')}")
            except StoreRefused as error:
                if error.status != 503 or job.stopped.is_set():
                    raise
                job.hashed = _progress_of(error.said)
                job.total_bytes = job.hashed[1] if job.hashed else job.total_bytes
                job.stopped.wait(patience.pause_s(2))
            else:
                job.hashed = None
                return parse_manifest(json.dumps(document).encode(), model_id)
    finally:
        link.drop()


def stage_from_store(
    area: StagingArea,
    address: StoreAddress,
    model_id: str,
    job: StageJob,
    *,
    freeable: Callable[[], int] = lambda: 0,
    patience: Patience = USUAL_PATIENCE,
) -> Path:
    """As `stage_model`; copies already while the store computes the checksums."""
    with ThreadPoolExecutor(1, thread_name_prefix="manifest") as pool:
        asking = pool.submit(fetch_manifest, address, model_id, job, patience)
        try:
            if not wait({asking}, timeout=CHECKSUMS_S).done:
                _copy_early(area, address, model_id, job, freeable, patience)
            manifest = asking.result()
        except BaseException:
            job.stop()  # the thread that asks for the manifest ends with it
            raise
    return stage_model(area, address, manifest, job, freeable=freeable, patience=patience)


def _copy_early(
    area: StagingArea,
    address: StoreAddress,
    model_id: str,
    job: StageJob,
    freeable: Callable[[], int],
    patience: Patience,
) -> None:
    """Bring the bytes of a new copy; they are unfinished files until they are verified."""
    path = area.path_of(model_id)
    listing = _fetch_listing(address, model_id, job, patience)
    if listing is None or (path.exists() and any(path.iterdir())):
        return  # what an earlier attempt left can only be used with checksums
    with _disk_errors(area, path, listing):
        path.mkdir(parents=True, exist_ok=True)
        with area.locked(path.name):
            job.total_bytes, job.total_files = listing.total_bytes, len(listing.files)
            job.sizes = listing.sizes
            _require_space(path, listing.total_bytes, listing, freeable)
            _fetch_all(address, listing, path, list(listing.files), job, patience)


def _fetch_listing(
    address: StoreAddress, model_id: str, job: StageJob, patience: Patience
) -> Manifest | None:
    """The files of a model without checksums; None from a store that does not tell them."""
    link = job.link(address, patience.silence_s)
    try:
        document = link.json(f"/listings/{quote(model_id, safe='')}")
    except (UnknownModelError, StoreRefused):
        return None
    finally:
        link.drop()
    return parse_listing(json.dumps(document).encode(), model_id)


@contextmanager
def _disk_errors(area: StagingArea, path: Path, manifest: Manifest) -> Iterator[None]:
    """Turns what the disk says into a StoreError; a full one loses the unfinished copy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(area, path, manifest) from error
        raise FileAccessError.of(error, path) from error


def stage_model(
    area: StagingArea,
    address: StoreAddress,
    manifest: Manifest,
    job: StageJob,
    *,
    freeable: Callable[[], int] = lambda: 0,
    patience: Patience = USUAL_PATIENCE,
) -> Path:
    """The directory of the whole copy. Raises StoreError; BusyError when another process does it.

    `freeable` tells how much a purge of staged copies would free, for the refusal.
    """
    path = area.path_of(manifest.model_id)
    with _disk_errors(area, path, manifest):
        path.mkdir(parents=True, exist_ok=True)
        with area.locked(path.name):
            if area.is_complete(manifest.model_id) and _noted(path) == _note_of(manifest):
                return path
            missing = _prepare(area, path, manifest, job)
            _require_space(path, sum(size for _, size in missing), manifest, freeable)
            _fetch_all(address, manifest, path, [e for e, _ in missing], job, patience)
            area.mark_complete(manifest.model_id, manifest.sizes)
    return path


def _prepare(
    area: StagingArea, path: Path, manifest: Manifest, job: StageJob
) -> list[tuple[FileEntry, int]]:
    """Keep what an earlier attempt verified; what is missing, with the bytes it still needs."""
    area.unmark(manifest.model_id)
    same = _noted(path) == _note_of(manifest)
    _drop_strangers(path, manifest)
    job.total_bytes, job.total_files = manifest.total_bytes, len(manifest.files)
    job.sizes = manifest.sizes
    missing: list[tuple[FileEntry, int]] = []
    present: dict[str, int] = {}
    for entry in manifest.files:
        file = path / entry.path
        # Under its own name a file was verified, against this manifest or an older one.
        if _size(file) == entry.size and (same or sha256_of(file) == entry.sha256):
            present[entry.path] = entry.size
            continue
        file.unlink(missing_ok=True)
        have = min(_size(file.with_name(file.name + PARTIAL)) or 0, entry.size)
        present[entry.path] = have
        missing.append((entry, entry.size - have))
    job.found(present, len(manifest.files) - len(missing))
    if not same:
        write_atomic(path / MANIFEST_NOTE, _note_of(manifest))
    return missing


def _drop_strangers(path: Path, manifest: Manifest) -> None:
    """Delete files of an older version of the model; our own notes are hidden and stay."""
    wanted = {entry.path for entry in manifest.files}
    for file in list(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        stranger = name.removesuffix(PARTIAL) not in wanted and not name.startswith(".")
        if file.is_symlink() or (file.is_file() and stranger):
            file.unlink()


def _require_space(
    path: Path, needed: int, manifest: Manifest, freeable: Callable[[], int]
) -> None:
    free = shutil.disk_usage(path).free
    if needed + SPARE_BYTES <= free or not needed:
        return
    short = needed + SPARE_BYTES - free
    could = freeable()
    purge = f"a purge of staged models that nobody uses would free {_gib(could)}"
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
    job: StageJob,
    patience: Patience,
) -> None:
    """The largest first, so that no single one is left for the end."""
    todo = deque(sorted(missing, key=lambda entry: -entry.size))
    for entry in todo:
        (path / entry.path).parent.mkdir(parents=True, exist_ok=True)

    def work() -> None:
        link = job.link(address, patience.silence_s)
        try:
            while not job.stopped.is_set() and (entry := _take(todo)) is not None:
                heard = Listener(partial(job.add, entry.path), job.failed)
                target = path / entry.path
                job.sha256[entry.path] = fetch_file(
                    link,
                    manifest.model_id,
                    entry,
                    target,
                    heard,
                    stop=job.stopped,
                    patience=patience,
                    known_sha256=job.sha256.get(entry.path),
                )
                job.file_done()
        finally:
            link.drop()

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
        raise Stopped(f"staging of {manifest.model_id} was stopped")


def _take(todo: deque[FileEntry]) -> FileEntry | None:
    try:
        return todo.popleft()
    except IndexError:
        return None


def _disk_full(area: StagingArea, path: Path, manifest: Manifest) -> NoSpaceError:
    """Somebody else took the room meanwhile. A full disk is worse than a copy begun anew."""
    freed = area.remove(path.name)
    return NoSpaceError(
        f"the disk of {area.root} became full while {manifest.model_id} was staged; the"
        f" unfinished copy was removed, which gives {_gib(freed)} back",
        hint="skulkctl storage",
    )


def _note_of(manifest: Manifest) -> bytes:
    files = [[entry.path, entry.size, entry.sha256] for entry in manifest.files]
    return json.dumps(files).encode()


def _noted(path: Path) -> bytes:
    try:
        return (path / MANIFEST_NOTE).read_bytes()
    except OSError:
        return b""


def _size(path: Path) -> int | None:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return None


def _progress_of(said: str) -> tuple[int, int] | None:
    try:
        document = json.loads(said)
        return int(document["hashed_bytes"]), int(document["total_bytes"])
    except (ValueError, KeyError, TypeError):
        return None


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.2f} GiB"
