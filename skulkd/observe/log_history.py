"""Older lines of this daemon, and of those before it, from the log file. Reads a bounded part.

Blocking: call it from a thread. What cannot be read is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from skulkd.wire.logs import LogLine

MOST_BYTES = 4 * 1024**2
_STEP_BYTES = 64 * 1024
_STAMP = len("2026-05-04T14:00:00.000")


def lines_before(files: Sequence[Path], moment: str | None, count: int) -> list[LogLine]:
    """The last lines written before this moment (ISO, UTC), oldest first; None: the last of all.

    The files are the parts of one log, the newest first.
    """
    found: list[LogLine] = []
    left = MOST_BYTES
    for file in files:
        try:
            with file.open("rb") as source:
                raw = _tail(source, moment, left)
        except OSError:
            continue
        found = _parsed(raw, moment) + found
        left -= len(raw)
        if len(found) >= count or left <= 0:
            break
    return found[-count:]


def _tail(source: BinaryIO, moment: str | None, limit: int) -> bytes:
    """What ends just after the moment: at most so many bytes, beginning with a whole line."""
    end = source.seek(0, 2)
    if moment is not None:
        end = min(end, _position(source, moment[:_STAMP], end) + _STEP_BYTES)
    start = max(0, end - limit)
    source.seek(start)
    raw = source.read(end - start)
    return raw if start == 0 else raw.partition(b"\n")[2]


def _position(source: BinaryIO, moment: str, end: int) -> int:
    """About where lines of this moment begin: bisected, because lines are in order of time."""
    low, high = 0, end
    while high - low > _STEP_BYTES:
        middle = (low + high) // 2
        source.seek(middle)
        source.readline()
        if _stamp(source.readline()) < moment:
            low = middle
        else:
            high = middle
    return high


def _stamp(line: bytes) -> str:
    try:
        return str(json.loads(line)["ts"])[:_STAMP]
    except (ValueError, KeyError, TypeError):
        return ""


def _parsed(raw: bytes, moment: str | None) -> list[LogLine]:
    lines = (_line(one) for one in raw.splitlines())
    limit = None if moment is None else moment[:_STAMP]
    return [one for one in lines if one is not None and (limit is None or (one.at or "") < limit)]


def _line(raw: bytes) -> LogLine | None:
    """None for what is no whole line of ours: a write that was cut off, or the start of one."""
    try:
        told = json.loads(raw)
        text = str(told["msg"])
        if told.get("exception"):
            text = f"{text}\n{told['exception']}"
        at = f"{str(told['ts']).removesuffix('Z')}+00:00"
        return LogLine(at=at, level=str(told["level"]), text=text)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
