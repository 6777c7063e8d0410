"""Writing files so that a crash leaves the old text or the new text, never a part of one.

Must not know what is in the files.
"""

import contextlib
import fcntl
import os
import re
import stat
from pathlib import Path

PRIVATE_UMASK = 0o077
"""New files are for their owner alone: 0600, directories 0700."""


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace the content of `path`. Blocking; the data is on disk when it returns.

    Without `mode` an existing file keeps its permissions. A symbolic link stays, its target is
    replaced. Raises OSError that names `path`; the old content is then still there.
    """
    target = Path(os.path.realpath(path))
    try:
        old = _stat(target)
        if mode is None and old is not None:
            mode = stat.S_IMODE(old.st_mode)
        _remove_leftovers(target)
        # A new file of no special mode gets what the umask leaves of 0666.
        fd, temp = _create_temp(target, 0o666 if mode is None else 0o600)
        try:
            if old is not None:
                _keep_owner(fd, old)
            if mode is not None:
                os.fchmod(fd, mode)
            _write_all(fd, data)
            temp.replace(target)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        _sync_directory(target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def create_atomic(path: Path, data: bytes, *, mode: int) -> bool:
    """Create `path` with this content unless it exists. True when this call created it.

    Of several processes that try at once exactly one wins, and none sees a partial file.
    Raises OSError that names `path`.
    """
    try:
        _remove_leftovers(path)
        fd, temp = _create_temp(path, 0o600)
        try:
            os.fchmod(fd, mode)
            _write_all(fd, data)
            os.link(temp, path)
        except FileExistsError:
            return False
        finally:
            temp.unlink(missing_ok=True)
            os.close(fd)
        _sync_directory(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return True


def remove_durably(path: Path) -> None:
    """Delete a file that may be missing; it stays deleted after a power loss. Raises OSError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    _sync_directory(path.parent)


def make_private_dir(path: Path) -> None:
    """Create a directory that only its owner may enter. An existing one is left as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _keep_owner(fd: int, old: os.stat_result) -> None:
    # Root must not take the file away from the user whose daemon reads it.
    if os.geteuid() == 0:
        os.fchown(fd, old.st_uid, old.st_gid)


def _create_temp(target: Path, mode: int) -> tuple[int, Path]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        temp = target.with_name(f".{target.name}.{os.urandom(6).hex()}.tmp")
        fd = os.open(temp, flags, mode)
        # The lock tells other writers that this file is in use; it dies with the process.
        # A file system without locks never gets its leftovers removed, which is harmless.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, temp
        # Another writer took it for a leftover before the lock was ours.
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.fsync(fd)


def _sync_directory(directory: Path) -> None:
    """Make renames in this directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove_leftovers(target: Path) -> None:
    """Delete temporary files of writers that died. One that is still written to is locked."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}\.tmp")
    with os.scandir(target.parent) as entries:
        names = [entry.name for entry in entries if pattern.fullmatch(entry.name)]
    for name in names:
        _remove_if_unused(target.with_name(name))


def _remove_if_unused(temp: Path) -> None:
    # In use by a living writer, already gone, or not ours to delete: leaving it costs nothing.
    with contextlib.suppress(OSError):
        fd = os.open(temp, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temp.unlink(missing_ok=True)
        finally:
            os.close(fd)
