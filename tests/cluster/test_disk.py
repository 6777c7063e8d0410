"""The snapshot and its tail: whatever byte is lost or wrong, the longest whole part is read."""

from __future__ import annotations

import itertools
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skulkd.cluster import disk
from skulkd.cluster.disk import RecordFile, applied, difference, read_tail, tail_line
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.messages import ClusterRecord, Deletion, JournalEntry, Placement
from skulkd.wire.events import Event, InstanceCreated, InstanceDeleted, TracingStateChanged
from skulkd.wire.ids import EventId, InstanceId
from tests.daemon.builders import A, an_instance

EMPTY = ClusterRecord("l", 1, -1)


def versions(count: int) -> list[ClusterRecord]:
    """Records as a cluster would write them, one after the other."""
    journal = JournalReplica()
    journal.lineage = "l"
    found = [journal.record()]
    for number in range(count):
        event: Event = InstanceCreated(instance=an_instance(f"i{number}", (A,)))
        if number % 3 == 2:
            name = InstanceId(f"i{number - 1}")
            event = InstanceDeleted(event_id=EventId(f"e{number}"), instance_id=name)
        elif number % 5 == 4:
            event = TracingStateChanged(enabled=number % 2 == 0)
        journal.apply(JournalEntry(number, event, f"c{number}", "{}"))
        found.append(journal.record())
    return found


def saved(home: Path, records: list[ClusterRecord]) -> RecordFile:
    file = RecordFile(home / "placements.json")
    for record in records:
        file.save(record)
    return file


def tails(home: Path) -> list[Path]:
    return sorted(home.glob("*.tail"))


def test_what_is_saved_is_loaded_by_the_next_process(tmp_path: Path) -> None:
    records = versions(9)
    file = RecordFile(tmp_path / "placements.json")
    assert file.load() is None
    for record in records:
        file.save(record)
        assert RecordFile(file.path).load() == record
    [tail] = tails(tmp_path)
    assert tail.read_bytes().count(b"\n") == 9
    for path in (file.path, tail):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # A change costs what it says, not what is there.
    line = tail.read_bytes().splitlines()[-1]
    assert len(line) < file.path.stat().st_size + 1500


def test_a_tail_is_read_as_far_as_it_is_whole_wherever_it_is_damaged(tmp_path: Path) -> None:
    records = versions(6)
    lines = [tail_line(difference(one, two)) for one, two in itertools.pairwise(records)]
    raw = b"".join(lines)
    ends = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    for offset in range(len(raw)):
        whole = sum(end <= offset for end in ends) - 1
        for damaged in (
            raw[:offset],
            raw[:offset] + bytes([raw[offset] ^ 0x41]) + raw[offset + 1 :],
            raw[:offset] + b"\0" * (len(raw) - offset),
        ):
            changes, used = read_tail(damaged)
            assert (len(changes), used) == (whole, ends[whole]), offset
    record = records[0]
    for change in read_tail(raw)[0]:
        record = applied(record, change)
    assert record == records[-1]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    half=st.integers(1, 7),
    which=st.sampled_from(["snapshot", "tail", "older tail"]),
    where=st.integers(0, 2**20),
    flip=st.integers(0, 255),
)
def test_any_damage_to_any_file_leaves_a_version_that_was_saved(
    tmp_path_factory: pytest.TempPathFactory, half: int, which: str, where: int, flip: int
) -> None:
    home = tmp_path_factory.mktemp("disk")
    records = versions(8)
    file = saved(home, records[:half])
    again = RecordFile(file.path)  # The process begins anew here, with a snapshot.
    for record in records[half:]:
        again.save(record)
    files = {
        "snapshot": file.path,
        "tail": again.tail(again._base),
        "older tail": file.tail(file._base),
    }
    raw = bytearray(files[which].read_bytes())
    offset = where % (len(raw) + 1)
    if flip and offset < len(raw):
        raw[offset] ^= flip
    else:
        del raw[offset:]
    files[which].write_bytes(bytes(raw))
    found = RecordFile(file.path).load()
    assert found in records
    at_least = {"snapshot": half - 1, "tail": half, "older tail": 8}[which]
    assert records.index(found) >= at_least  # type: ignore[arg-type]


def test_without_both_snapshots_there_is_nothing(tmp_path: Path) -> None:
    file = saved(tmp_path, versions(3))
    RecordFile(file.path).save(EMPTY)
    for path in (file.path, file.path.with_suffix(".old")):
        path.write_text("{}")
    assert file.load() is None


def test_the_tail_becomes_a_snapshot_when_it_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "TAIL_BYTES", 4000)
    records = versions(60)
    file = RecordFile(tmp_path / "placements.json")
    for record in records:
        file.save(record)
        assert all(tail.stat().st_size < 4000 + 2000 for tail in tails(tmp_path))
        assert len(tails(tmp_path)) <= 2
    assert RecordFile(file.path).load() == records[-1]


def test_a_crash_while_the_snapshot_is_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = versions(4)
    file = saved(tmp_path, records)

    def crash(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "write_atomic", crash)
    with pytest.raises(OSError, match="No space"):
        file.save(replace(records[-1], lineage="another"))
    assert RecordFile(file.path).load() == records[-1]
    monkeypatch.undo()
    # The next save does not build on what was not written.
    file.save(replace(records[-1], lineage="another"))
    found = RecordFile(file.path).load()
    assert found is not None
    assert found.lineage == "another"


def test_a_line_that_could_not_be_written_whole_is_not_built_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = versions(6)
    file = saved(tmp_path, records[:4])
    with monkeypatch.context() as patched:
        write = disk.os.write
        patched.setattr(disk.os, "write", lambda fd, data: write(fd, data[:20]))
        with pytest.raises(OSError, match="No space"):
            file.save(records[4])
    assert RecordFile(file.path).load() == records[3]
    file.save(records[5])
    assert RecordFile(file.path).load() == records[5]


def test_differences_keep_what_did_not_change() -> None:
    placement = Placement(an_instance("i1"), {A: "kite1"})
    one = ClusterRecord("l", 1, 2, (placement,), False, (Deletion(EventId("e"), InstanceId("x")),))
    two = replace(one, index=3, tracing=True)
    change = difference(one, two)
    assert (change.placed, change.gone, change.deleted) == ((), (), ())
    assert applied(one, change) == two


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_every_save_syncs_its_file_and_new_files_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    records = versions(2)
    file = saved(tmp_path, records[:1])
    [temporary, directory] = synced
    assert temporary.name.startswith(".placements.json")
    assert directory == tmp_path
    synced.clear()
    file.save(records[1])
    assert synced == tails(tmp_path)


def test_a_line_that_was_not_synced_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = versions(3)
    file = saved(tmp_path, records[:2])

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            file.save(records[2])
    assert RecordFile(file.path).load() == records[1]
