"""Recordings of timelines: one JSON object per line, or a capture bundle, or a bare answer.

`timeline --record` writes what `timeline --from` reads, so that a hang can be looked at again on
another machine, long after the cluster was restarted. They are read as tolerantly as answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

from skulkctl.capture.bundles import TIMELINE, is_bundle, read_members
from skulkctl.daemon.reading import Unreadable, read_model
from skulkctl.errors import CliError, NotFound
from skulkctl.output.units import parse_time, time_text
from skulkctl.timeline.frames import Frame

if TYPE_CHECKING:
    from skulkd.wire.timeline import Timeline

KIND = "skulkctl/timeline-recording"
MAX_FRAMES = 100_000


def frame_document(frame: Frame) -> dict[str, object]:
    """A frame as JSON: in recordings with its time, in bundles without."""
    return {"timeline": timeline_document(frame.timeline), "names": dict(frame.names)}


def timeline_document(timeline: Timeline) -> dict[str, object]:
    """The timeline with the keys that the daemon gave."""
    return timeline.model_dump(mode="json", exclude_unset=True)


class Recorder:
    """Appends frames to a file; the same timeline is not written twice."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: IO[str] = path.open("a", encoding="utf-8")
        except OSError as error:
            raise CliError(f"cannot record to {path}", str(error.strerror)) from error
        self._last: Timeline | None = None

    def add(self, frame: Frame) -> None:
        if frame.timeline is not self._last:
            document = {"kind": KIND, "at": time_text(frame.at), **frame_document(frame)}
            self._file.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
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
        documents = _in_bundle(path) if is_bundle(head) else _in_lines(path.read_bytes())
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except OSError as error:
        raise CliError(f"cannot read {path}", str(error.strerror)) from error
    frames = [frame for document in documents if (frame := _frame(document)) is not None]
    if not frames:
        raise CliError(
            f"{path} contains no timeline",
            "it is not a recording, a capture bundle or a saved response",
            hints=[
                "create a recording:  skulkctl timeline --record FILE",
                "skulkctl capture INSTANCE",
            ],
        )
    return frames


def frame_in(members: Mapping[str, bytes], path: Path) -> Frame | None:
    """The frame of a bundle; None when it holds no timeline. Raises CliError."""
    return next((frame for one in _in_members(members, path) if (frame := _frame(one))), None)


def _in_bundle(path: Path) -> list[object]:
    return _in_members(read_members(path), path)


def _in_members(members: Mapping[str, bytes], path: Path) -> list[object]:
    if TIMELINE not in members:
        return []
    try:
        return [json.loads(members[TIMELINE])]
    except ValueError as error:
        raise CliError(f"{path} is damaged", str(error)) from error


def _in_lines(raw: bytes) -> Iterator[object]:
    try:
        yield json.loads(raw)
    except ValueError:
        yield from _documents(raw.splitlines()[:MAX_FRAMES])


def _documents(lines: list[bytes]) -> Iterator[object]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            return  # the last line of a recording that was cut off; what came before is good


def _frame(document: object) -> Frame | None:
    """None for a document that holds no timeline."""
    if not isinstance(document, Mapping):
        return None
    timeline = _timeline(document.get("timeline")) or _timeline(document)
    if timeline is None:
        return None
    at = parse_time(str(document.get("at") or timeline.generated_at)) or datetime.now(UTC)
    return Frame(timeline, _names(document.get("names")), at)


def _timeline(document: object) -> Timeline | None:
    from skulkd.wire.timeline import Timeline

    try:
        found = read_model(Timeline, document, lambda text: None)
    except Unreadable:
        return None
    # Other answers of a node also say when and by whom they were made.
    return found if "runners" in found.model_fields_set else None


def _names(saved: object) -> dict[str, str]:
    return {str(key): str(name) for key, name in saved.items()} if isinstance(saved, dict) else {}
