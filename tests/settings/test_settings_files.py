"""Atomic writes under real faults: size limits, full disks, kill -9, competing writers."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import resource
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.settings.files import create_atomic, make_private_dir, write_atomic
from tests.settings.mounts import tmpfs


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _names(directory: str | Path) -> list[str]:
    return sorted(entry.name for entry in Path(directory).iterdir())


@contextlib.contextmanager
def _largest_file(limit: int) -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@given(
    old=st.binary(max_size=300) | st.none(),
    new=st.binary(max_size=300),
    limit=st.integers(0, 300),
)
@settings(max_examples=60, deadline=None)
def test_write_that_may_fail_leaves_old_or_new(old: bytes | None, new: bytes, limit: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "skulk.yaml")
        if old is not None:
            path.write_bytes(old)
        try:
            with _largest_file(limit):
                write_atomic(path, new)
        except OSError as error:
            assert len(new) > limit
            assert (error.errno, error.filename) == (errno.EFBIG, str(path))
            expected = old
        else:
            assert len(new) <= limit
            expected = new
        assert (path.read_bytes() if path.exists() else None) == expected
        assert _names(directory) == ([] if expected is None else ["skulk.yaml"])


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_existing_file_without_mode_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_atomic(path, b"new")
    assert (_mode(path), path.read_bytes()) == (mode, b"new")


def test_given_mode_wins_over_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_atomic(path, b"new", mode=0o600)
    assert _mode(path) == 0o600


def test_new_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "plain", b"x")
        write_atomic(tmp_path / "secret", b"x", mode=0o600)
    finally:
        os.umask(before)
    assert (_mode(tmp_path / "plain"), _mode(tmp_path / "secret")) == (0o640, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_writing_leaves_the_file_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    os.chown(path, 12345, 12346)
    write_atomic(path, b"new", mode=0o600)
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)


def test_symbolic_link_stays_and_its_target_changes(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "skulk.yaml"
    real.parent.mkdir()
    real.write_bytes(b"old")
    link = tmp_path / "skulk.yaml"
    link.symlink_to(real)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


@pytest.mark.parametrize("write", [write_atomic, lambda p, d: create_atomic(p, d, mode=0o600)])
def test_leftovers_of_a_dead_writer_are_removed(
    tmp_path: Path, write: Callable[[Path, bytes], object]
) -> None:
    mine = tmp_path / ".f.0123456789ab.tmp"
    others = [tmp_path / ".g.0123456789ab.tmp", tmp_path / ".f.notes.tmp", tmp_path / "f.tmp"]
    for leftover in (mine, *others):
        leftover.write_bytes(b"half")
    write(tmp_path / "f", b"x")
    assert not mine.exists()
    assert all(other.exists() for other in others)


def test_many_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    texts = [bytes([65 + n]) * 5000 for n in range(6)]

    def write_often(text: bytes) -> None:
        for _ in range(10):
            write_atomic(path, text)

    failures = _in_threads([lambda text=text: write_often(text) for text in texts])
    assert failures == []
    assert path.read_bytes() in texts
    assert _names(tmp_path) == ["f"]


def test_many_creators_at_once_have_one_winner(tmp_path: Path) -> None:
    path = tmp_path / "f"
    won: list[bytes] = []

    def create(text: bytes) -> None:
        if create_atomic(path, text, mode=0o600):
            won.append(text)

    texts = [b"%d" % n for n in range(8)]
    assert _in_threads([lambda text=text: create(text) for text in texts]) == []
    assert won == [path.read_bytes()]
    assert (_mode(path), _names(tmp_path)) == (0o600, ["f"])


def _in_threads(jobs: list[Callable[[], None]]) -> list[BaseException]:
    failures: list[BaseException] = []
    gate = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        gate.wait(300)
        try:
            job()
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return failures


_ENDLESS_WRITER = """
import hashlib, sys
from pathlib import Path
from skulkd.settings.files import write_atomic
number = 0
while True:
    number += 1
    body = (b"%d " % number) * (number % 5 * 60_000 + 1)
    write_atomic(Path(sys.argv[1]), hashlib.sha256(body).hexdigest().encode() + b"\\n" + body)
    if number == 1:
        print("started", flush=True)
"""


def test_kill_during_writes_never_leaves_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "skulk.yaml"
    for round_number in range(6):
        command = [sys.executable, "-c", _ENDLESS_WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            try:
                assert writer.stdout.readline() == b"started\n"
                # Readers see whole files meanwhile; the kill comes at another moment each time.
                for _ in range(40 + 7 * round_number):
                    _assert_whole(path)
            finally:
                writer.kill()
        _assert_whole(path)
    write_atomic(path, b"after")
    assert _names(tmp_path) == ["skulk.yaml"]


def _assert_whole(path: Path) -> None:
    digest, _, body = path.read_bytes().partition(b"\n")
    assert body
    assert hashlib.sha256(body).hexdigest().encode() == digest


def test_full_disk_names_the_path_and_keeps_the_old_text(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "size=64k") as disk:
        path = disk / "skulk.yaml"
        write_atomic(path, b"old")
        with pytest.raises(OSError, match="No space left") as caught:
            write_atomic(path, b"x" * 200_000)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
        assert path.read_bytes() == b"old"
        assert _names(disk) == ["skulk.yaml"]


def test_read_only_disk_names_the_path_and_keeps_the_old_text(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "fixed", "size=64k") as disk:
        path = disk / "skulk.yaml"
        path.write_bytes(b"old")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(OSError, match="Read-only") as caught:
            write_atomic(path, b"new")
        assert caught.value.filename == str(path)
        assert path.read_bytes() == b"old"


@pytest.mark.parametrize("write", [write_atomic, lambda p, d: create_atomic(p, d, mode=0o600)])
def test_directory_that_is_a_file_names_the_path(
    tmp_path: Path, write: Callable[[Path, bytes], object]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / "file" / "skulk.yaml"
    with pytest.raises(NotADirectoryError) as caught:
        write(path, b"x")
    assert caught.value.filename == str(path)


def test_private_directory_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    make_private_dir(path)
    assert _mode(path) == 0o700
    path.chmod(0o755)
    make_private_dir(path)
    assert _mode(path) == 0o755
