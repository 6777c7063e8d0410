"""Logs of runners: kept, rotated, pruned; a full disk costs lines and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from skulkd.worker.log_files import LogPump, RotatingFile, log_path, prune_logs
from skulkd.worker.options import LogLimits
from tests.worker.rig import eventually

SMALL = LogLimits(max_bytes=100, files=3, runners=2)


def test_a_file_rotates_before_it_grows_too_large(tmp_path: Path) -> None:
    path = tmp_path / "runner-a.log"
    file = RotatingFile(path, SMALL)
    for letter in b"abcde":
        file.write(bytes([letter]) * 60)
    file.close()
    kept = [path, path.with_name("runner-a.log.1"), path.with_name("runner-a.log.2")]
    assert [part.read_bytes()[:1] for part in kept] == [b"e", b"d", b"c"]
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_the_next_process_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "runner-a.log"
    for text in (b"one\n", b"two\n"):
        file = RotatingFile(path, SMALL)
        file.write(text)
        file.close()
    assert path.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_single_file_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "runner-a.log"
    file = RotatingFile(path, LogLimits(max_bytes=100, files=1))
    file.write(b"a" * 80)
    file.write(b"b" * 80)
    file.close()
    assert path.read_bytes() == b"b" * 80
    assert list(tmp_path.iterdir()) == [path]


async def test_everything_printed_is_kept_and_the_last_line_is_known(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runner-a.log"
    read, write = os.pipe()
    pump = LogPump(read, path, LogLimits())
    os.write(write, b"first\nlast words\n\n")
    os.close(write)
    assert await pump.finished(30)
    assert path.read_bytes() == b"first\nlast words\n\n"
    assert pump.last_line == "last words"


async def test_a_full_disk_does_not_block_the_runner(small_disk: Path) -> None:
    read, write = os.pipe()
    pump = LogPump(read, small_disk / "runner-a.log", LogLimits())
    os.set_blocking(write, False)
    written = 0

    def pour() -> bool:
        nonlocal written
        try:
            written += os.write(write, b"x" * 8192)
        except BlockingIOError:
            return False
        return written > 1024 * 1024

    await eventually(pour, "a megabyte to be taken")
    os.close(write)
    assert await pump.finished(30)


async def test_a_log_directory_that_cannot_be_made_costs_only_the_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    read, write = os.pipe()
    pump = LogPump(read, tmp_path / "file" / "runner-a.log", LogLimits())
    os.write(write, b"words\n")
    os.close(write)
    assert await pump.finished(30)
    assert pump.last_line == "words"


async def test_waiting_for_a_pipe_that_stays_open_has_an_end(tmp_path: Path) -> None:
    read, write = os.pipe()
    pump = LogPump(read, tmp_path / "runner-a.log", LogLimits())
    assert not await pump.finished(0.01)
    os.close(write)
    assert await pump.finished(30)


def test_only_logs_of_the_latest_runners_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate(
        ["runner-c.log", "runner-b.log", "runner-b.log.1", "runner-a.log", "runner-a.log.1"]
    ):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "skulk.log").write_text("x")
    prune_logs(tmp_path, SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "runner-b.log",
        "runner-b.log.1",
        "runner-c.log",
        "skulk.log",
    ]


def test_pruning_a_missing_directory_does_nothing(tmp_path: Path) -> None:
    prune_logs(tmp_path / "missing", SMALL)


@pytest.mark.parametrize("runner_id", ["../../etc/x", "a/b", "x" * 500, "\n"])
def test_no_runner_id_leads_out_of_the_directory(tmp_path: Path, runner_id: str) -> None:
    path = log_path(tmp_path, runner_id)
    assert path.parent == tmp_path
    assert len(path.name) < 100
