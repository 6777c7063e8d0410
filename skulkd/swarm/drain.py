"""The drain of this node: it accepts no new work. Set by the operator, kept over restarts.

It is stored on this node's disk, because a node gets a new id at every start. Other nodes learn
of it with its readings.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from skulkd.settings.files import make_private_dir, remove_durably, write_atomic
from skulkd.wire.base import format_zulu

log = logging.getLogger(__name__)


class Drain:
    """The flag of this node."""

    def __init__(self, file: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._file = file
        self._now = now
        self._since = _read(file)
        self._listeners: list[Callable[[], None]] = []

    @property
    def draining(self) -> bool:
        return self._since is not None

    @property
    def since(self) -> str | None:
        """Since when, in UTC."""
        return self._since

    async def change(self, *, draining: bool) -> bool:
        """Written to disk first; whether that changed anything. Raises OSError, nothing changed."""
        if draining == self.draining:
            return False
        since = format_zulu(self._now()) if draining else None
        await asyncio.to_thread(self._write, since)
        self._since = since
        log.info("this node %s", "drains: no new work" if draining else "accepts new work again")
        for listener in self._listeners:
            listener()
        return True

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def _write(self, since: str | None) -> None:
        if since is None:
            remove_durably(self._file)
            return
        make_private_dir(self._file.parent)
        write_atomic(self._file, json.dumps({"drainingSince": since}).encode(), mode=0o600)


def _read(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_bytes())["drainingSince"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        # The file itself means a drain; its content is only for display.
        log.warning("%s cannot be read, this node drains: %s", file.name, error)
        return "unknown"
