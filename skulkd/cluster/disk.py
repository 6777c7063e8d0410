"""What outlives the process: placements and settings of the cluster, in one checked file.

Small and whole: it is written anew whenever a placement changes, so there is no tail to replay
and nothing that grows. The version before is kept, should the file be damaged.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

from skulkd.cluster.codec import Unreadable, dump, load_as
from skulkd.cluster.messages import Record
from skulkd.settings.files import make_private_dir, write_atomic

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024

log = logging.getLogger(__name__)


class RecordFile:
    """Blocking; `save` is called in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._older = path.with_suffix(".old")

    def load(self) -> Record | None:
        """The newest version that is whole; None when there is none."""
        for file in (self.path, self._older):
            try:
                return _parsed(file)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                log.warning("the placements in %s cannot be used: %s", file, error)
        return None

    def save(self, record: Record) -> None:
        """Raises OSError; the version before is then still there."""
        text = dump(record)
        sealed = json.dumps({"version": VERSION, "sha256": hashlib.sha256(text).hexdigest()})
        make_private_dir(self.path.parent)
        if self.path.exists():
            self.path.replace(self._older)
        write_atomic(self.path, sealed.encode() + b"\n" + text, mode=0o600)


def _parsed(file: Path) -> Record:
    with file.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError("it is too large")
    head, _, text = content.partition(b"\n")
    seal = json.loads(head)
    if not isinstance(seal, dict) or seal.get("version") != VERSION:
        raise ValueError(f"it is not of version {VERSION}")
    if seal.get("sha256") != hashlib.sha256(text).hexdigest():
        raise ValueError("its checksum is wrong")
    try:
        record: Record = load_as(Record, text)
    except Unreadable as error:
        raise ValueError(str(error)) from error
    return record
