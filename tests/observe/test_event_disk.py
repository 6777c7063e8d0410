"""The event log on disk: ring, archives, floor, ENOSPC, recovery, a real small file system."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skulkd.cluster.health import node_health
from skulkd.observe.event_disk import DiskLimits, EventDisk, Record, read_records
from skulkd.observe.event_log import EventLog
from skulkd.observe.event_stream import EventFilter, from_disk, kind_of, line_of
from skulkd.observe.event_writer import EventWriter
from skulkd.wire.events import TaskAcknowledged, TracingStateChanged
from skulkd.wire.health import EVENT_LOG_DEGRADED
from skulkd.wire.ids import TaskId

SMALL = DiskLimits(
    ring_bytes=4000, keep_events=20, archives=2, archive_bytes=10_000, floor_bytes=0, check_every=10
)


def records(start: int, count: int, size: int = 80) -> list[Record]:
    return [Record(number, 1000.0 + number, b"x" * size) for number in range(start, start + count)]


def opened(path: Path, limits: DiskLimits = SMALL, free: int = 1 << 40) -> EventDisk:
    disk = EventDisk(path, limits, lambda _: free)
    disk.open()
    return disk


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    disk = opened(tmp_path)
    disk.append(records(7, 3))
    assert list(read_records(disk.file)) == records(7, 3)
    assert disk.status.written == 3


def test_the_ring_keeps_the_newest_and_never_grows_past_its_cap(tmp_path: Path) -> None:
    disk = opened(tmp_path)
    for start in range(0, 2000, 10):
        disk.append(records(start, 10))
        assert disk.file.stat().st_size == disk.status.active_bytes
        assert disk.status.active_bytes <= 4000 + 10 * 100
    kept = [record.index for record in read_records(disk.file)]
    assert kept == list(range(kept[0], 2000))
    assert len(kept) >= 20


def test_archives_are_capped_by_count_and_by_size(tmp_path: Path) -> None:
    for _ in range(5):
        disk = opened(tmp_path)
        disk.append([Record(1, 1.0, os.urandom(2000))])
        disk.close()
    assert len(list(tmp_path.glob("*.zst"))) == 2
    tight = DiskLimits(archives=50, archive_bytes=5000, floor_bytes=0)
    for _ in range(5):
        disk = opened(tmp_path, tight)
        disk.append([Record(1, 1.0, os.urandom(2000))])
        disk.close()
    sizes = [path.stat().st_size for path in tmp_path.glob("*.zst")]
    assert sizes and sum(sizes) <= 5000


def test_what_a_killed_process_left_is_archived_and_an_empty_log_leaves_nothing(
    tmp_path: Path,
) -> None:
    opened(tmp_path).append(records(0, 3))
    opened(tmp_path)
    assert len(list(tmp_path.glob("*.zst"))) == 1
    opened(tmp_path).close()
    assert len(list(tmp_path.glob("*.zst"))) == 1
    assert not (tmp_path / "events.bin").exists()


def test_below_the_floor_it_counts_and_recovers_by_itself(tmp_path: Path) -> None:
    free = [5000]
    disk = EventDisk(tmp_path, DiskLimits(floor_bytes=1000, check_every=10), lambda _: free[0])
    disk.open()
    disk.append(records(0, 5))
    free[0] = 999
    for start in range(5, 35, 5):
        disk.append(records(start, 5))
    assert disk.status.counting_only
    assert "less than the floor" in (disk.status.trouble or "")
    assert disk.status.written + disk.status.counted == 35
    free[0] = 5000
    for start in range(35, 65, 5):
        disk.append(records(start, 5))
    assert not disk.status.counting_only
    assert [one.index for one in read_records(disk.file)][-1] == 64
    assert disk.status.written + disk.status.counted == 65


def test_floor_is_looked_at_only_every_so_many_appends(tmp_path: Path) -> None:
    asked = []

    def free(_: Path) -> int:
        asked.append(1)
        return 1 << 40

    disk = EventDisk(tmp_path, DiskLimits(check_every=1024), free)
    disk.open()
    before = len(asked)
    for number in range(3000):
        disk.append(records(number, 1))
    assert len(asked) - before == 2


def test_a_full_disk_costs_events_and_nothing_else(small_disk: Path) -> None:
    """On a real file system of 256 KiB: half a record must not stay behind."""
    disk = EventDisk(small_disk / "log", DiskLimits(floor_bytes=0, check_every=10_000))
    disk.open()
    for start in range(0, 600, 10):
        disk.append(records(start, 10, size=1000))
    assert disk.status.counting_only
    assert os.strerror(errno.ENOSPC) in (disk.status.trouble or "")
    assert disk.status.written + disk.status.counted == 600
    for record in read_records(disk.file):
        assert record.payload == b"x" * 1000
    disk.look()
    disk.append(records(600, 10, size=10))
    assert not disk.status.counting_only
    assert [one.index for one in read_records(disk.file)] == list(range(600, 610))


def test_a_directory_that_cannot_be_made_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    disk = opened(tmp_path / "file" / "log")
    disk.append(records(0, 3))
    assert disk.status.counting_only
    disk.close()


@pytest.mark.parametrize("damage", [lambda raw: raw[:-5], lambda raw: raw + b"\0\0\0"])
def test_a_damaged_end_ends_the_reading(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    disk = opened(tmp_path)
    disk.append(records(0, 3))
    disk.file.write_bytes(damage(disk.file.read_bytes()))
    assert len(list(read_records(disk.file))) in (2, 3)


def test_the_writer_brings_everything_and_counts_what_does_not_fit(tmp_path: Path) -> None:
    log = EventLog()
    writer = EventWriter(opened(tmp_path, DiskLimits(floor_bytes=0)), now=lambda: 1234.5)
    log.sink = writer.take
    log.append(TaskAcknowledged(task_id=TaskId("early")))
    writer.start()
    for number in range(2000):
        log.append(TaskAcknowledged(task_id=TaskId(str(number))))
    log.append(TracingStateChanged(enabled=True))
    assert writer.flush(60.0)
    kept = list(from_disk(writer.disk.file, EventFilter(after=1999)))
    assert [(one.index, kind_of(one.payload)) for one in kept][-1] == (2001, "TracingStateChanged")
    assert [kind_of(one.payload) for one in
            from_disk(writer.disk.file, EventFilter(kinds=frozenset({"TracingStateChanged"})))
            ] == ["TracingStateChanged"]  # fmt: skip
    assert line_of(kept[-1]).startswith(
        b'{"index": 2001, "at": "1970-01-01T00:20:34.500+00:00", "kind": "TracingStateChanged", '
    )
    assert list(from_disk(writer.disk.file, EventFilter(since_s=2000.0))) == []
    writer.stop(60.0)
    assert not writer.disk.file.exists()
    full = EventWriter(opened(tmp_path / "b"), queue_events=1)
    full.take(0, TracingStateChanged(enabled=True))
    full.take(1, TracingStateChanged(enabled=True))
    assert full.lost == 1


def test_events_are_written_together_and_at_once_for_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = opened(tmp_path, DiskLimits(floor_bytes=0))
    batches: list[int] = []
    append = disk.append
    monkeypatch.setattr(disk, "append", lambda some: (batches.append(len(some)), append(some)))
    writer = EventWriter(disk, gather_s=3600.0)
    writer.start()
    for number in range(3):
        writer.take(number, TracingStateChanged(enabled=True))
    assert writer.flush(60.0)
    assert batches == [3]
    writer.stop(60.0)


def test_health_names_the_real_reason_why_it_only_counts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    blocked = opened(tmp_path / "file" / "log")
    full = opened(tmp_path / "log", DiskLimits(floor_bytes=1 << 30), free=0)
    for disk, why, cure in (
        (blocked, "it cannot be opened", "Cure what the message names"),
        (full, "0 MiB are free", "Free space"),
    ):
        health = node_health([], None, 0.0, [f"{EVENT_LOG_DEGRADED}: {disk.status.trouble}"])
        [reason] = health.reasons
        assert (health.level, reason.code) == ("warn", "event_log")
        assert why in reason.message
        assert reason.remediation.startswith(cure)
    assert node_health([], None, 0.0, ["something else"]).reasons == []
