"""The record of the cluster on disk: placements, deletions, tokens and settings.

A snapshot file and a tail file. A change appends one line with a checksum to the tail, so the cost
of a write does not depend on the size of the record. A long tail is replaced by a new snapshot.
After a crash, everything up to the last complete line is read; if the snapshot is damaged, the
previous one is used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from skulkd.cluster.codec import UnreadableMessage, dump, load_as
from skulkd.cluster.journal_replica import DELETIONS
from skulkd.cluster.messages import ClusterRecord, Deletion, LostMember, Placement
from skulkd.cluster.tokens import REVOKED
from skulkd.settings.files import make_private_dir, write_atomic
from skulkd.wire.ids import InstanceId, TokenId
from skulkd.wire.tokens import AccessToken

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
TAIL_BYTES = 1024 * 1024
"""A tail that is longer becomes a snapshot."""
_DIGEST = 16

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordChange:
    """The difference between two records. Its field names are those on disk."""

    clock: int
    index: int
    placed: tuple[Placement, ...] = ()
    gone: tuple[InstanceId, ...] = ()
    deleted: tuple[Deletion, ...] = ()
    tracing: bool = False
    members: tuple[str, ...] = ()
    lost: tuple[LostMember, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    revoked_tokens: tuple[TokenId, ...] = ()


class RecordFile:
    """Blocking; `save` is called in a thread, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._older = path.with_suffix(".old")
        self._saved: ClusterRecord | None = None
        """The content of the files; None makes the next save a snapshot."""
        self._base = ""
        self._tail_bytes = 0

    def load(self) -> ClusterRecord | None:
        """The newest record that is complete; None when there is none."""
        for file in (self.path, self._older):
            try:
                base, record = _parsed(_content(file))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                log.warning("the placements in %s cannot be used: %s", file, error)
                continue
            return self._with_tail(base, record)
        return None

    def save(self, record: ClusterRecord) -> None:
        """Raises OSError; what was saved before is then still there."""
        before, self._saved = self._saved, None
        if before is None or before.lineage != record.lineage or self._tail_bytes > TAIL_BYTES:
            self._write_snapshot(record)
        elif record != before:
            self._append(difference(before, record))
        self._saved = record

    def tail(self, base: str) -> Path:
        """Where changes after the snapshot with this checksum are."""
        return self.path.with_name(f"{self.path.stem}-{base[:_DIGEST]}.tail")

    def _with_tail(self, base: str, record: ClusterRecord) -> ClusterRecord:
        try:
            raw = _content(self.tail(base))
        except FileNotFoundError:
            return record
        except (OSError, ValueError) as error:
            log.warning("changes in %s cannot be used: %s", self.tail(base), error)
            return record
        changes, used = read_tail(raw)
        if used < len(raw):
            log.warning("the last %d bytes of %s are damaged", len(raw) - used, self.tail(base))
        for change in changes:
            record = applied(record, change)
        return record

    def _write_snapshot(self, record: ClusterRecord) -> None:
        text = dump(record)
        base = hashlib.sha256(text).hexdigest()
        sealed = json.dumps({"version": VERSION, "sha256": base})
        make_private_dir(self.path.parent)
        if self.path.exists():
            self.path.replace(self._older)
        # It may be there from an earlier time; the directory is synced with the snapshot below.
        os.close(os.open(self.tail(base), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        write_atomic(self.path, sealed.encode() + b"\n" + text, mode=0o600)
        self._base, self._tail_bytes = base, 0
        self._remove_stale_tails()

    def _append(self, change: RecordChange) -> None:
        line = tail_line(change)
        fd = os.open(self.tail(self._base), os.O_WRONLY | os.O_APPEND)
        try:
            _write_whole(fd, line)
            os.fsync(fd)
        except OSError:
            # A refused command must not be on disk at the next start.
            os.ftruncate(fd, self._tail_bytes)
            raise
        finally:
            os.close(fd)
        self._tail_bytes += len(line)

    def _remove_stale_tails(self) -> None:
        """All but those of the two snapshots that are kept."""
        kept = {self.tail(self._base)}
        with contextlib.suppress(OSError, ValueError):
            kept.add(self.tail(_parsed(_content(self._older))[0]))
        for file in self.path.parent.glob(f"{self.path.stem}-*.tail"):
            if file not in kept:
                file.unlink(missing_ok=True)


def _write_whole(fd: int, line: bytes) -> None:
    if os.write(fd, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def tail_line(change: RecordChange) -> bytes:
    """The change with a checksum before it."""
    text = dump(change)
    return _digest(text) + b" " + text + b"\n"


def read_tail(raw: bytes) -> tuple[list[RecordChange], int]:
    """The complete changes, and the number of bytes they take. Pure."""
    changes: list[RecordChange] = []
    used = 0
    while (end := raw.find(b"\n", used)) >= 0:
        digest, _, text = raw[used:end].partition(b" ")
        if digest != _digest(text):
            break
        try:
            changes.append(load_as(RecordChange, text))
        except UnreadableMessage:
            break  # Written by a newer version: use what precedes it.
        used = end + 1
    return changes, used


def difference(before: ClusterRecord, after: ClusterRecord) -> RecordChange:
    """The change from one record to a later one of the same cluster. Pure."""
    old = _by_id(before.placements)
    new = _by_id(after.placements)
    known = set(before.deletions)
    tokens = {one.token_id for one in before.tokens}
    revoked = set(before.revoked_tokens)
    return RecordChange(
        after.clock,
        after.index,
        tuple(one for key, one in new.items() if old.get(key) != one),
        tuple(key for key in old if key not in new),
        tuple(one for one in after.deletions if one not in known),
        after.tracing,
        after.members,
        after.lost,
        tuple(one for one in after.tokens if one.token_id not in tokens),
        tuple(one for one in after.revoked_tokens if one not in revoked),
    )


def applied(record: ClusterRecord, change: RecordChange) -> ClusterRecord:
    """The record after the change. Pure."""
    placements = _by_id(record.placements) | _by_id(change.placed)
    for instance_id in change.gone:
        placements.pop(instance_id, None)
    revoked = (*record.revoked_tokens, *change.revoked_tokens)[-REVOKED:]
    tokens = {one.token_id: one for one in (*record.tokens, *change.tokens)}
    for token_id in change.revoked_tokens:
        tokens.pop(token_id, None)
    return replace(
        record,
        clock=change.clock,
        index=change.index,
        placements=tuple(placements.values()),
        deletions=(*record.deletions, *change.deleted)[-DELETIONS:],
        tracing=change.tracing,
        members=change.members,
        lost=change.lost,
        tokens=tuple(tokens.values()),
        revoked_tokens=revoked,
    )


def _by_id(placements: Iterable[Placement]) -> dict[InstanceId, Placement]:
    return {one.instance.instance_id: one for one in placements}


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:_DIGEST].encode()


def _content(file: Path) -> bytes:
    with file.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError("it is too large")
    return content


def _parsed(content: bytes) -> tuple[str, ClusterRecord]:
    """Checksum and record. Raises ValueError."""
    head, _, text = content.partition(b"\n")
    seal = json.loads(head)
    if not isinstance(seal, dict) or seal.get("version") != VERSION:
        raise ValueError(f"it is not of version {VERSION}")
    base = hashlib.sha256(text).hexdigest()
    if seal.get("sha256") != base:
        raise ValueError("its checksum is wrong")
    try:
        record: ClusterRecord = load_as(ClusterRecord, text)
    except UnreadableMessage as error:
        raise ValueError(str(error)) from error
    return base, record
