"""A file that grows to a size and then makes room for the next: logs must not eat a disk."""

import os
from pathlib import Path
from typing import Protocol


class FileLimits(Protocol):
    """How large a file may be, and how many there are with the current one."""

    @property
    def max_bytes(self) -> int: ...

    @property
    def files(self) -> int: ...


def parts(path: Path, files: int) -> list[Path]:
    """Where the current file and its older parts are, the newest first; some may not exist."""
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, files))]


class RotatingFile:
    """`name.log`, then `name.log.1` and so on for older parts."""

    def __init__(self, path: Path, limits: FileLimits) -> None:
        self._path = path
        self._limits = limits
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        """Raises OSError; the file is then as it was."""
        if self._size and self._size + len(data) > self._limits.max_bytes:
            self._rotate()
        self._size += os.write(self._fd, data)

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _rotate(self) -> None:
        for number in range(self._limits.files - 1, 0, -1):
            older = self._part(number - 1)
            if older.exists():
                older.replace(self._part(number))
        if self._limits.files == 1:
            self._path.unlink(missing_ok=True)
        fd = self._open()
        os.close(self._fd)
        self._fd, self._size = fd, 0

    def _part(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")
