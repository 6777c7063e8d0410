"""Model directories that appear whole or not at all. Must not know what goes into them.

A directory grows under a hidden name beside its final place and is renamed when it is ready.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from skulkd.store.errors import FileAccessError, ModelExistsError, NoSpaceError
from skulkd.store.model_ids import directory_name

_BUILDING = ".building-"
_REMOVING = ".removing-"
_GIB = 1024**3
_SPARE_BYTES = 64 * 1024**2


@contextlib.contextmanager
def build_model(models: Path, model_id: str, *, replace: bool = False) -> Iterator[Path]:
    """A directory to fill; it becomes the model's when the block ends without an error.

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
            put_in_place(content, target, model_id, replace=replace)
    except OSError as error:
        raise FileAccessError.of(error, models) from error


def put_in_place(content: Path, target: Path, model_id: str, *, replace: bool) -> None:
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
    """A hidden directory on the models' disk that is gone afterwards, even after a crash.

    A killed process leaves it behind unlocked; the next one to come here deletes it.
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
    """Delete a model directory; nobody ever sees a part of it. Raises OSError."""
    hidden = _hide(path)
    if hidden is not None:
        # What cannot be deleted now is a leftover for later.
        shutil.rmtree(hidden, ignore_errors=True)


def remove_leftovers(models: Path) -> None:
    """Delete what died processes left. A directory in use is locked and stays."""
    with os.scandir(models) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in names:
        if name.startswith(_REMOVING):
            shutil.rmtree(models / name, ignore_errors=True)
        elif name.startswith(_BUILDING):
            _remove_if_unused(models / name)


def require_space(directory: Path, needed_bytes: int) -> None:
    """Raise NoSpaceError when the disk of an existing directory cannot take this much."""
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
        # On a file system without locks leftovers stay for ever, which is safe.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        # Somebody took it for a leftover before the lock was ours.
        os.close(lock)


def _remove_if_unused(path: Path) -> None:
    # Locked by a living process, or already gone: both need nothing from us.
    with contextlib.suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _hide(path: Path) -> Path | None:
    """Give a directory a name that the next clean-up deletes; None when it is not there."""
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
