"""Recordings of timelines: one JSON object per line, or a capture bundle, or a bare answer.

`timeline --record` writes what `timeline --from` reads, so that a hang can be looked at again
on another machine, long after the cluster was restarted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from skulkctl.bundles import TIMELINE, is_bundle, read_members
from skulkctl.errors import CliError, NotFound
from skulkctl.tui.feed import Frame
from skulkctl.units import parse_time, time_text
from skulkctl.views.read import Document, mapping, sequence, text

KIND = "skulkctl/timeline-recording"
MAX_FRAMES = 100_000


def frame_line(frame: Frame) -> str:
    """One line of a recording."""
    document = {
        "kind": KIND,
        "at": time_text(frame.at),
        "names": dict(frame.names),
        "timeline": frame.timeline,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


class Recorder:
    """Appends frames to a file; the same frame is not written twice."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: IO[str] = path.open("a", encoding="utf-8")
        except OSError as error:
            raise CliError(f"cannot record to {path}", str(error.strerror)) from error
        self._last: Document | None = None

    def add(self, frame: Frame) -> None:
        if frame.timeline is not self._last:
            self._file.write(frame_line(frame))
            self._file.flush()
            self._last = frame.timeline

    def close(self) -> None:
        self._file.close()


def read_frames(path: Path) -> list[Frame]:
    """The frames of a recording, of a capture bundle, or of one saved answer.

    Raises NotFound when there is no such file, CliError when it holds no timeline.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except OSError as error:
        raise CliError(f"cannot read {path}", str(error.strerror)) from error
    frames = _from_bundle(path) if is_bundle(head) else list(_from_lines(path))
    if not frames:
        raise CliError(
            f"{path} holds no timeline",
            "it is neither a recording, nor a capture bundle, nor a saved answer",
            hints=["make one:  skulkctl timeline --record FILE", "skulkctl capture INSTANCE"],
        )
    return frames


def _from_bundle(path: Path) -> list[Frame]:
    members = read_members(path)
    if TIMELINE not in members:
        return []
    document = _json(members[TIMELINE], path)
    return [_frame(document)] if _is_frame(document) else []


def _from_lines(path: Path) -> Iterator[Frame]:
    raw = path.read_bytes()
    try:
        whole = json.loads(raw)
    except ValueError:
        whole = None
    if isinstance(whole, Mapping):
        if _is_frame(whole):
            yield _frame(whole)
        return
    for number, row in enumerate(raw.splitlines()):
        if number >= MAX_FRAMES:
            return
        try:
            document = json.loads(row)
        except ValueError:
            # The last line of a recording that was cut off; what came before is good.
            return
        if _is_frame(document):
            yield _frame(document)


def _json(raw: bytes, path: Path) -> object:
    try:
        document: object = json.loads(raw)
    except ValueError as error:
        raise CliError(f"{path} is damaged", str(error)) from error
    return document


def _is_frame(document: object) -> bool:
    timeline = mapping(document, "timeline") or mapping(document)
    return isinstance(timeline.get("runners"), list)


def _frame(document: object) -> Frame:
    wrapped = mapping(document, "timeline")
    timeline = wrapped or mapping(document)
    names = {str(key): str(value) for key, value in mapping(document, "names").items()}
    told = text(document, "at") or text(timeline, "generatedAt") or ""
    at = parse_time(told) or datetime.now(UTC)
    return Frame(timeline, names or _names_in(document), at)


def _names_in(document: object) -> dict[str, str]:
    found = {}
    for node in sequence(document, "nodes"):
        node_id, name = text(node, "nodeId"), text(node, "name")
        if node_id and name:
            found[node_id] = name
    return found
