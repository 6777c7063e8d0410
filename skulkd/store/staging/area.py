"""The staging area: one `<org>--<name>` directory for each copy, with two hidden files. Blocking.

The time of the last use is the modification time of `.last_used`. `.complete` is written last and
lists every file with its size, so an incomplete copy is never loaded. Must not know who uses a
copy or where it comes from.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from skulkd.settings.files import write_atomic
from skulkd.store.atomic_directory import remove_directory, remove_leftovers
from skulkd.store.errors import BusyError, FileAccessError
from skulkd.store.model_ids import directory_name

COMPLETE = ".complete"
LAST_USED = ".last_used"


@dataclass(frozen=True, slots=True)
class StagedModel:
    """One directory of the staging area, complete or not."""

    name: str
    path: Path
    size_bytes: int
    last_used: float
    complete: bool

    @property
    def model_id(self) -> str:
        """For display only: two ids can in theory have the same directory name."""
        return self.name.replace("--", "/", 1)


class StagingArea:
    """The directory of `node_cache_path`. Raises FileAccessError when the system refuses."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path_of(self, model_id: str) -> Path:
        """Where the copy of a model is or would be. Raises BadModelIdError."""
        return self.root / directory_name(model_id)

    def copies(self) -> list[StagedModel]:
        """Every copy, the last used first. A missing area has none."""
        models = [self._inspect(name) for name in self._names()]
        found = [model for model in models if model is not None]
        return sorted(found, key=lambda model: (-model.last_used, model.name))

    def is_complete(self, model_id: str) -> bool:
        """Whether there is a complete copy. Raises BadModelIdError."""
        return is_complete_copy(self.path_of(model_id))

    def mark_complete(self, model_id: str, sizes: Mapping[str, int]) -> None:
        """The last step of staging: from now on the copy is complete."""
        text = json.dumps({"modelId": model_id, "files": dict(sizes)}, indent=1)
        write_atomic(self.path_of(model_id) / COMPLETE, text.encode())

    def unmark(self, model_id: str) -> None:
        """Files of the copy are about to change."""
        (self.path_of(model_id) / COMPLETE).unlink(missing_ok=True)

    def touch(self, model_id: str, at: float | None = None) -> None:
        """Record a use; best effort, because a read-only disk must not stop a model."""
        self.touch_copy(directory_name(model_id), at)

    def touch_copy(self, name: str, at: float | None = None) -> None:
        """The same by directory name, which need not be that of a valid id."""
        marker = self.root / name / LAST_USED
        at = time.time() if at is None else at
        with contextlib.suppress(OSError):
            marker.touch()
            os.utime(marker, (at, at))

    def remove(self, name: str) -> int:
        """Delete a copy and return its size. Raises BusyError while another process fills it."""
        path = self.root / name
        try:
            if path.is_symlink():
                path.unlink()
                return 0
            with self.locked(name):
                size_bytes = tree_bytes(path)
                remove_directory(path)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise FileAccessError.of(error, path) from error
        return size_bytes

    def remove_leftovers(self) -> None:
        """Finish the deletions that a crash interrupted."""
        # What cannot be read now is removed at the next start.
        with contextlib.suppress(OSError):
            remove_leftovers(self.root)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Lock an existing copy against other processes. Raises BusyError or OSError."""
        fd = os.open(self.root / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(f"{name} is being staged by another process") from None
            yield
        finally:
            os.close(fd)

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.root) as entries:
                return [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FileAccessError.of(error, self.root) from error

    def _inspect(self, name: str) -> StagedModel | None:
        path = self.root / name
        try:
            last_used = _last_used(path)
        except OSError:
            return None  # deleted a moment ago
        return StagedModel(name, path, tree_bytes(path), last_used, is_complete_copy(path))


def tree_bytes(path: Path | str) -> int:
    """Bytes of all files below; files that vanish or cannot be read are not counted."""
    total = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += tree_bytes(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return total
    return total


def _last_used(path: Path) -> float:
    try:
        return (path / LAST_USED).stat().st_mtime
    except FileNotFoundError:
        return path.stat().st_mtime


def is_complete_copy(path: Path) -> bool:
    """Whether every file that the marker lists is there with its full size."""
    files = _marked_files(path / COMPLETE)
    return files is not None and all(_has_size(path / name, size) for name, size in files.items())


def _marked_files(marker: Path) -> Mapping[str, int] | None:
    try:
        content = json.loads(marker.read_bytes())
        files = content["files"]
        return files if isinstance(files, dict) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _has_size(path: Path, size: object) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
