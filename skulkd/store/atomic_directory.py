"""Creates and deletes model directories atomically. Must not know what goes into them.

A directory is built under a hidden name beside its final place and renamed when it is complete.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from skulkd.store.errors import FileAccessError, ModelExistsError, NoSpaceError
from skulkd.store.model_ids import directory_name

_BUILDING = ".building-"
_REMOVING = ".removing-"
_GIB = 1024**3
_SPARE_BYTES = 64 * 1024**2

Report = Callable[[str, int, int | None, str], None]
"""Called with the progress of a long import or download: phase, bytes done, total, current item."""


def no_report(_phase: str, _done_bytes: int, _total_bytes: int | None, _item: str) -> None:
    """For callers that show no progress."""


@contextlib.contextmanager
def build_model(models: Path, model_id: str, *, replace: bool = False) -> Iterator[Path]:
    """A directory to fill; it gets the model's name when the block ends without an error.

    Raises ModelExistsError at once when the id is taken and `replace` is false, and
    FileAccessError for every OSError inside the block.
    """
    target = models / directory_name(model_id)
    refuse_existing(models, model_id, replace=replace)
    try:
        with scratch_directory(models) as scratch:
            content = scratch / target.name
            content.mkdir()
            yield content
            rename_into_place(content, target, model_id, replace=replace)
    except OSError as error:
        raise FileAccessError.of(error, models) from error


def rename_into_place(content: Path, target: Path, model_id: str, *, replace: bool) -> None:
    """Give a finished directory its name. Raises ModelExistsError or OSError."""
    old = _hide(target) if replace else None
    _move(content, target, model_id)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def refuse_existing(models: Path, model_id: str, *, replace: bool) -> None:
    """Raise ModelExistsError when the id is taken and may not be replaced."""
    if not replace and (models / directory_name(model_id)).exists():
        raise _exists(model_id)


@contextlib.contextmanager
def scratch_directory(models: Path) -> Iterator[Path]:
    """A hidden, locked directory on the models' disk that is deleted afterwards.

    A killed process leaves it behind unlocked; the next call deletes it.
    """
    models.mkdir(parents=True, exist_ok=True)
    remove_leftovers(models)
    path, lock = _create_locked(models)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_directory(path: Path) -> None:
    """Delete a model directory; nobody sees it half deleted. Raises OSError."""
    hidden = _hide(path)
    if hidden is not None:
        # What cannot be deleted now is deleted by `remove_leftovers`.
        shutil.rmtree(hidden, ignore_errors=True)


def remove_leftovers(models: Path) -> None:
    """Delete what killed processes left. A directory in use is locked and stays."""
    with os.scandir(models) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in names:
        if name.startswith(_REMOVING):
            shutil.rmtree(models / name, ignore_errors=True)
        elif name.startswith(_BUILDING):
            _remove_if_unused(models / name)


def require_space(directory: Path, needed_bytes: int) -> None:
    """Raise NoSpaceError when the disk of a directory has less space than this."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes + _SPARE_BYTES:
        raise NoSpaceError(
            f"the import needs {needed_bytes / _GIB:.2f} GiB in {directory},"
            f" {free_bytes / _GIB:.2f} GiB are free",
            hint="free some space, or choose another disk with SKULK_MODELS_DIR",
        )


def _create_locked(models: Path) -> tuple[Path, int]:
    while True:
        path = models / f"{_BUILDING}{os.urandom(6).hex()}"
        path.mkdir()
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # On a file system without locks leftovers stay, which is safe.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        # Another process deleted it as a leftover before it was locked.
        os.close(lock)


def _remove_if_unused(path: Path) -> None:
    # Locked by a running process, or already gone.
    with contextlib.suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _hide(path: Path) -> Path | None:
    """Rename a directory so that `remove_leftovers` deletes it; None when there is none."""
    hidden = path.with_name(f"{_REMOVING}{os.urandom(6).hex()}")
    try:
        return path.rename(hidden)
    except FileNotFoundError:
        return None


def _move(content: Path, target: Path, model_id: str) -> None:
    try:
        content.rename(target)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise _exists(model_id) from error
        raise


def _exists(model_id: str) -> ModelExistsError:
    return ModelExistsError(
        f"{model_id} is already in the models directory",
        hint="choose another id, or replace it with --replace",
    )
