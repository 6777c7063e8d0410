"""What outlives the process: placements, deletions, tokens and settings, as a snapshot and a tail.

A change is one checked line at the end of the tail, so that it costs what it says and not what
the cluster holds. The tail belongs to one snapshot and begins anew when it is long. A crash at any
byte leaves the longest part that is whole; a snapshot that is damaged costs what came after it.
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

from skulkd.cluster.codec import Unreadable, dump, load_as
from skulkd.cluster.ledger import DELETIONS
from skulkd.cluster.messages import Deletion, LostMember, Placement, Record
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
class Change:
    """One step from a record to the next."""

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
        self._saved: Record | None = None
        """What the files say; None makes the next save a snapshot."""
        self._base = ""
        self._tail_bytes = 0

    def load(self) -> Record | None:
        """The newest version that is whole; None when there is none."""
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

    def save(self, record: Record) -> None:
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

    def _with_tail(self, base: str, record: Record) -> Record:
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

    def _write_snapshot(self, record: Record) -> None:
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

    def _append(self, change: Change) -> None:
        line = tail_line(change)
        fd = os.open(self.tail(self._base), os.O_WRONLY | os.O_APPEND)
        try:
            _write_whole(fd, line)
            os.fsync(fd)
        except OSError:
            # What is refused must not come back with the next start.
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


def tail_line(change: Change) -> bytes:
    """The change with a checksum before it."""
    text = dump(change)
    return _digest(text) + b" " + text + b"\n"


def read_tail(raw: bytes) -> tuple[list[Change], int]:
    """Changes as far as they are whole, and how many bytes those are. Pure."""
    changes: list[Change] = []
    used = 0
    while (end := raw.find(b"\n", used)) >= 0:
        digest, _, text = raw[used:end].partition(b" ")
        if digest != _digest(text):
            break
        try:
            changes.append(load_as(Change, text))
        except Unreadable:
            break  # Written by a version that this one cannot read: what was before counts.
        used = end + 1
    return changes, used


def difference(before: Record, after: Record) -> Change:
    """What leads from one record to the next of the same cluster. Pure."""
    old = _by_id(before.placements)
    new = _by_id(after.placements)
    known = set(before.deletions)
    tokens = {one.token_id for one in before.tokens}
    revoked = set(before.revoked_tokens)
    return Change(
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


def applied(record: Record, change: Change) -> Record:
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


def _parsed(content: bytes) -> tuple[str, Record]:
    """Checksum and record. Raises ValueError."""
    head, _, text = content.partition(b"\n")
    seal = json.loads(head)
    if not isinstance(seal, dict) or seal.get("version") != VERSION:
        raise ValueError(f"it is not of version {VERSION}")
    base = hashlib.sha256(text).hexdigest()
    if seal.get("sha256") != base:
        raise ValueError("its checksum is wrong")
    try:
        record: Record = load_as(Record, text)
    except Unreadable as error:
        raise ValueError(str(error)) from error
    return base, record
