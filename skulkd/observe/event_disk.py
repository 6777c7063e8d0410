"""The event log on disk: a ring file, compressed archives, and a floor under the free space.

Knows bytes, not events. Below the floor, or when a write fails, it only counts: an event log
must never take the last bytes from what serves. It recovers by itself when space returns.
Not safe for threads; one writer owns it.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

MIB = 1024**2
_HEAD = struct.Struct(">IQd")
_ACTIVE = "events.bin"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """When to compact, what to keep, and how much space to leave to others."""

    ring_bytes: int = 256 * MIB
    keep_events: int = 20_000
    archives: int = 5
    archive_bytes: int = 1024 * MIB
    floor_bytes: int = 2048 * MIB
    check_every: int = 1024


@dataclass(frozen=True, slots=True)
class Record:
    """One event as it is kept."""

    index: int
    at_s: float
    payload: bytes

    def packed(self) -> bytes:
        return _HEAD.pack(len(self.payload), self.index, self.at_s) + self.payload


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """How the log is doing; `trouble` says why it only counts."""

    trouble: str | None
    active_bytes: int
    archive_bytes: int
    written: int
    counted: int

    @property
    def counting_only(self) -> bool:
        return self.trouble is not None


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


class EventDisk:
    """Appends records; keeps its directory under its caps whatever happens."""

    def __init__(
        self,
        directory: Path,
        limits: DiskLimits | None = None,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._directory = directory
        self._limits = limits or DiskLimits()
        self._free = free
        self._fd: int | None = None
        self._size = 0
        self._lengths: deque[int] = deque(maxlen=self._limits.keep_events)
        self._since_check = 0
        self._trouble: str | None = None
        self._written = self._counted = 0

    @property
    def file(self) -> Path:
        return self._directory / _ACTIVE

    @property
    def status(self) -> DiskStatus:
        archives = sum(size for _, size in self._archives())
        size = 0 if self._trouble else self._size
        return DiskStatus(self._trouble, size, archives, self._written, self._counted)

    def open(self) -> None:
        """Archive what an earlier process left, and begin a new file."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._archive()
            self._begin()
        except OSError as error:
            self._degrade(f"it cannot be opened: {error.strerror or error}")
        else:
            self._check_floor()

    def append(self, records: Sequence[Record]) -> None:
        """Write them, or count them. Never raises."""
        self._since_check += len(records)
        if self._since_check >= self._limits.check_every:
            self.look()
        if self._fd is None:
            self._counted += len(records)
            return
        packed = [record.packed() for record in records]
        try:
            self._write(b"".join(packed))
        except OSError as error:
            self._counted += len(records)
            self._degrade(f"a write failed: {error.strerror or error}")
            return
        self._written += len(records)
        self._lengths.extend(map(len, packed))
        if self._size > self._limits.ring_bytes:
            self._compact()

    def look(self) -> None:
        """Check the free space: stop writing in time, begin again when there is room."""
        self._since_check = 0
        if self._fd is None:
            self._recover()
        else:
            self._check_floor()

    def close(self) -> None:
        """Archive the active file. Never raises."""
        if self._fd is None:
            return
        self._release()
        try:
            self._archive()
        except OSError as error:
            _log.warning("the event log was not archived: %s", error)

    # Writing

    def _begin(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fd = os.open(self.file, flags, 0o600)
        self._size = 0
        self._lengths.clear()

    def _write(self, data: bytes) -> None:
        if self._fd is None:
            return
        start = self._size
        view = memoryview(data)
        try:
            while view:
                done = os.write(self._fd, view)
                view = view[done:]
        except OSError:
            # Half a record would hide every later one.
            os.ftruncate(self._fd, start)
            raise
        self._size += len(data)

    def _compact(self) -> None:
        """Keep the newest events only; the file is replaced in one step."""
        keep = sum(self._lengths)
        fresh = self.file.with_suffix(".tmp")
        try:
            with self.file.open("rb") as source, fresh.open("wb") as target:
                source.seek(self._size - keep)
                shutil.copyfileobj(source, target)
            fresh.replace(self.file)
            fd = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            self._degrade(f"it cannot be compacted: {error.strerror or error}")
            return
        self._release()
        self._fd, self._size = fd, keep

    def _release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # Space

    def _room(self) -> str | None:
        """Why there is not enough space; None when there is."""
        try:
            free = self._free(self._directory)
        except OSError as error:
            return f"the free space cannot be read: {error.strerror or error}"
        if free < self._limits.floor_bytes:
            floor = self._limits.floor_bytes / MIB
            return f"{free / MIB:.0f} MiB are free, less than the floor of {floor:.0f} MiB"
        return None

    def _check_floor(self) -> None:
        trouble = self._room()
        if trouble is not None:
            self._degrade(trouble)

    def _degrade(self, why: str) -> None:
        if self._trouble is None:
            _log.critical("the event log only counts from now on: %s", why)
        self._trouble = why
        self._release()

    def _recover(self) -> None:
        if self._room() is not None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._archive()
            self._begin()
        except OSError as error:
            self._degrade(f"it cannot be opened: {error.strerror or error}")
            return
        self._trouble = None
        _log.info("the event log is written again")

    # Archives

    def _archives(self) -> list[tuple[Path, int]]:
        """Oldest first, with their sizes."""
        try:
            found = sorted(self._directory.glob("events.*.bin.zst"))
            return [(path, path.stat().st_size) for path in found]
        except OSError:
            return []

    def _archive(self) -> None:
        """Compress the active file away; an empty one leaves nothing."""
        import zstandard

        source = self.file
        if not source.exists():
            return
        if source.stat().st_size:
            stamp = datetime.now(UTC).strftime("%Y-%m-%d_%H-%M-%S_%f")
            target = self._directory / f"events.{stamp}.bin.zst"
            try:
                with source.open("rb") as raw, target.open("wb") as packed:
                    zstandard.ZstdCompressor(level=3).copy_stream(raw, packed)
            except OSError:
                target.unlink(missing_ok=True)
        source.unlink()
        self._prune()

    def _prune(self) -> None:
        archives = self._archives()
        total = sum(size for _, size in archives)
        while archives and (
            len(archives) > self._limits.archives or total > self._limits.archive_bytes
        ):
            path, size = archives.pop(0)
            path.unlink(missing_ok=True)
            total -= size


def read_records(file: Path) -> Iterator[Record]:
    """The records of an active file, oldest first, until its end or the first damaged one.

    A file that is replaced meanwhile is read to the end as it was. Raises OSError.
    """
    with file.open("rb") as source:
        while len(head := source.read(_HEAD.size)) == _HEAD.size:
            length, index, at_s = _HEAD.unpack(head)
            payload = source.read(length)
            if len(payload) < length:
                return
            yield Record(index, at_s, payload)
