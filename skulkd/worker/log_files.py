"""The output of runners: a thread reads it from a pipe into rotating files.

A full or slow disk loses log lines or delays that one runner, never the daemon.
"""

import asyncio
import logging
import os
import re
import threading
from pathlib import Path

from skulkd.rotating import RotatingFile
from skulkd.worker.options import LogLimits

_log = logging.getLogger(__name__)
_READ_BYTES = 64 * 1024
_TAIL_BYTES = 4096
_NAME = re.compile(r"(runner-.+?\.log)(\.\d+)?")


class LogPump:
    """Copies a pipe into a file until the last writer has closed it. Owns both."""

    def __init__(self, fd: int, path: Path, limits: LogLimits) -> None:
        self._fd = fd
        self._path = path
        self._limits = limits
        self._tail = b""
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"log-{path.stem}", daemon=True)
        self._thread.start()

    @property
    def last_line(self) -> str | None:
        """The last line that is not empty."""
        lines = self._tail.decode("utf-8", "replace").split("\n")
        return next((text for line in reversed(lines) if (text := line.strip())), None)

    async def finished(self, timeout_s: float) -> bool:
        """Wait until all output is in the file. False on timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._finished.wait()
        except TimeoutError:
            return False
        return True

    def _run(self) -> None:
        file = self._open()
        try:
            while data := os.read(self._fd, _READ_BYTES):
                self._tail = (self._tail + data)[-_TAIL_BYTES:]
                if file is not None and not self._write(file, data):
                    file.close()
                    file = None
        finally:
            os.close(self._fd)
            if file is not None:
                file.close()
            self._set_finished()

    def _open(self) -> RotatingFile | None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return RotatingFile(self._path, self._limits)
        except OSError as error:
            _log.warning("the output of a runner is not logged: %s: %s", self._path, error.strerror)
            return None

    def _write(self, file: RotatingFile, data: bytes) -> bool:
        try:
            file.write(data)
        except OSError as error:
            _log.warning(
                "the output of a runner is no longer logged: %s: %s", self._path, error.strerror
            )
            return False
        return True

    def _set_finished(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._finished.set)
        except RuntimeError:
            # The event loop is closed, so nobody waits.
            _log.debug("the daemon ended before its runner's output")


def log_path(directory: Path, runner_id: str) -> Path:
    """The log file of this runner; the id is not trusted."""
    return directory / f"runner-{re.sub(r'[^A-Za-z0-9_-]', '_', runner_id)[:64]}.log"


def prune_logs(directory: Path, limits: LogLimits) -> None:
    """Delete the logs of the runners that ran longest ago. Blocking."""
    newest: dict[str, float] = {}
    parts: dict[str, list[Path]] = {}
    try:
        for path in directory.iterdir():
            if found := _NAME.fullmatch(path.name):
                parts.setdefault(found[1], []).append(path)
                newest[found[1]] = max(newest.get(found[1], 0.0), path.stat().st_mtime)
        for name in sorted(newest, key=newest.__getitem__, reverse=True)[limits.runners :]:
            for path in parts[name]:
                path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("old runner logs cannot be deleted: %s", error)
