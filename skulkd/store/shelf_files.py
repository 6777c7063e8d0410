"""The files of one model in the store, with checksums that are computed once. Blocking.

Checksums are kept in a hidden file beside the weights, with the size and time of each file, so a
file that changes is read again. Where that cannot be written they are computed at every start.
"""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from skulkd.settings.files import write_atomic
from skulkd.store.manifest import FileEntry, why_not_a_path

HASHES = ".sha256.json"
_PIECE = 1 << 20

_Note = tuple[int, int, str]


def list_files(directory: Path) -> list[str]:
    """Relative paths of everything that may be given away, sorted.

    Hidden and unfinished files are ours; a link that leads out of the directory is nobody's.
    """
    root = Path(os.path.realpath(directory))
    found = (path.relative_to(root).as_posix() for path in _walk(root) if _is_inside(path, root))
    return sorted(path for path in found if why_not_a_path(path) is None)


def file_sizes(directory: Path) -> dict[str, int]:
    """Bytes of everything that may be given away."""
    return {path: (directory / path).stat().st_size for path in list_files(directory)}


def find_file(directory: Path, path: str) -> Path | None:
    """The file behind a path that a client asks for; None for what may not be given away."""
    if why_not_a_path(path) is not None:
        return None
    root = Path(os.path.realpath(directory))
    file = root / path
    return file if file.is_file() and _is_inside(file, root) else None


class Hashes:
    """Checksums of one model's files. One thread computes, others wait for it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._notes: dict[str, _Note] | None = None

    def entries(self, tell: Callable[[int], None] = lambda done: None) -> list[FileEntry]:
        """Every file with its checksum. Raises OSError.

        `tell` hears how many bytes are done: read now, or known from an earlier time.
        """
        with self._lock:
            old = self._read() if self._notes is None else self._notes
            new: dict[str, _Note] = {}
            for path in list_files(self._directory):
                stat = (self._directory / path).stat()
                known = old.get(path)
                if known is None or known[:2] != (stat.st_size, stat.st_mtime_ns):
                    digest = sha256_of(self._directory / path, tell)
                    known = (stat.st_size, stat.st_mtime_ns, digest)
                else:
                    tell(stat.st_size)
                new[path] = known
            if new != old:
                self._write(new)
            self._notes = new
        return [FileEntry(path, note[0], note[2]) for path, note in new.items()]

    def _read(self) -> dict[str, _Note]:
        try:
            content = json.loads((self._directory / HASHES).read_bytes())
            return {str(path): (int(a), int(b), str(c)) for path, (a, b, c) in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # missing or damaged: they are computed again

    def _write(self, notes: dict[str, _Note]) -> None:
        # A store on a read-only disk works too, only slower after a start.
        with contextlib.suppress(OSError):
            write_atomic(self._directory / HASHES, json.dumps(notes, indent=1).encode())


def sha256_of(path: Path, tell: Callable[[int], None] = lambda done: None) -> str:
    """The checksum of a file. Raises OSError."""
    digest = hashlib.sha256()
    buffer = bytearray(_PIECE)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
            tell(count)
    return digest.hexdigest()


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            yield Path(folder) / name


def _is_inside(path: Path, root: Path) -> bool:
    real = Path(os.path.realpath(path))
    return root in real.parents and real.is_file()
