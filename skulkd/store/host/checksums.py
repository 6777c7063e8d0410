"""The files of a model in the store and their checksums, which are computed once.

Checksums are saved in a hidden file beside the weights, with the size and time of each file, so a
file that changes is read again. Where that cannot be written they are computed at every start.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from skulkd.settings.files import write_atomic
from skulkd.store.manifest import FileEntry, path_problem

HASHES = ".sha256.json"
_PIECE = 1 << 20

_Saved = tuple[int, int, str]
OnBytes = Callable[[int], None]


def list_files(directory: Path) -> list[str]:
    """Relative paths of everything that may be served, sorted.

    Hidden and partial files are our own; links that lead out of the directory are left out.
    """
    root = Path(os.path.realpath(directory))
    found = (path.relative_to(root).as_posix() for path in _walk(root) if _is_inside(path, root))
    return sorted(path for path in found if path_problem(path) is None)


def file_sizes(directory: Path) -> dict[str, int]:
    """Sizes of everything that may be served."""
    return {path: (directory / path).stat().st_size for path in list_files(directory)}


def find_file(directory: Path, path: str) -> Path | None:
    """The file that a client requests; None for what may not be served."""
    if path_problem(path) is not None:
        return None
    root = Path(os.path.realpath(directory))
    file = root / path
    return file if file.is_file() and _is_inside(file, root) else None


def sha256_of(path: Path, on_bytes: OnBytes = lambda count: None) -> str:
    """The checksum of a file. Raises OSError."""
    digest = hashlib.sha256()
    buffer = bytearray(_PIECE)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
            on_bytes(count)
    return digest.hexdigest()


class Checksums:
    """Checksums of one model's files. One thread computes, others wait for it. Blocking."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._saved: dict[str, _Saved] | None = None

    def entries(self, on_bytes: OnBytes = lambda count: None) -> list[FileEntry]:
        """Every file with its checksum. Raises OSError.

        `on_bytes` counts bytes that were read now, and those of known checksums.
        """
        with self._lock:
            old = self._read() if self._saved is None else self._saved
            new: dict[str, _Saved] = {}
            for path in list_files(self._directory):
                stat = (self._directory / path).stat()
                known = old.get(path)
                if known is None or known[:2] != (stat.st_size, stat.st_mtime_ns):
                    digest = sha256_of(self._directory / path, on_bytes)
                    known = (stat.st_size, stat.st_mtime_ns, digest)
                else:
                    on_bytes(stat.st_size)
                new[path] = known
            if new != old:
                self._write(new)
            self._saved = new
        return [FileEntry(path, size, digest) for path, (size, _, digest) in new.items()]

    def _read(self) -> dict[str, _Saved]:
        try:
            content = json.loads((self._directory / HASHES).read_bytes())
            return {str(path): (int(a), int(b), str(c)) for path, (a, b, c) in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # missing or damaged: computed again

    def _write(self, saved: dict[str, _Saved]) -> None:
        # A store on a read-only disk works too, but computes checksums at every start.
        with contextlib.suppress(OSError):
            write_atomic(self._directory / HASHES, json.dumps(saved, indent=1).encode())


@dataclass(slots=True)
class ChecksumJob:
    """Checksums of one model that are being computed."""

    task: asyncio.Task[list[FileEntry]]
    total_bytes: int
    done_bytes: int = 0


@dataclass(slots=True)
class ChecksumJobs:
    """One job for each model, shared by all clients that ask for it."""

    _checksums: dict[str, Checksums] = field(default_factory=dict)
    _jobs: dict[str, ChecksumJob] = field(default_factory=dict)

    async def start(self, model_id: str, directory: Path) -> ChecksumJob:
        """The running job of a model, else a new one."""
        sizes = {} if model_id in self._jobs else await asyncio.to_thread(file_sizes, directory)
        job = self._jobs.get(model_id)
        if job is None:
            checksums = self._checksums.setdefault(model_id, Checksums(directory))
            task = asyncio.create_task(self._compute(model_id, checksums))
            job = self._jobs[model_id] = ChecksumJob(task, sum(sizes.values()))
            task.add_done_callback(lambda _: self._jobs.pop(model_id, None))
        return job

    def forget(self, model_id: str) -> None:
        self._checksums.pop(model_id, None)

    def cancel(self) -> None:
        for job in self._jobs.values():
            job.task.cancel()

    async def _compute(self, model_id: str, checksums: Checksums) -> list[FileEntry]:
        def on_bytes(count: int) -> None:
            job = self._jobs.get(model_id)
            if job is not None:
                job.done_bytes += count

        return await asyncio.to_thread(checksums.entries, on_bytes)


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            yield Path(folder) / name


def _is_inside(path: Path, root: Path) -> bool:
    real = Path(os.path.realpath(path))
    return root in real.parents and real.is_file()
