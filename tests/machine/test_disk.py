"""Disk of the models directory, compared with statvfs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skulkd.machine.disk import read_disk


@pytest.mark.parametrize("below", [".", "not/made/yet"])
def test_volume_of_the_directory_or_its_nearest_parent_is_read(tmp_path: Path, below: str) -> None:
    usage = read_disk(tmp_path / below)
    kernel = os.statvfs(tmp_path)
    assert usage.total.in_bytes == kernel.f_blocks * kernel.f_frsize
    # Others write to this disk while we compare.
    free = kernel.f_bavail * kernel.f_frsize
    assert usage.available.in_bytes == pytest.approx(free, abs=2 * 1024**3)


def test_another_file_system_gives_other_numbers() -> None:
    if not Path("/proc/self").exists():
        pytest.skip("needs a mounted /proc")
    assert read_disk(Path("/proc/self/models")).total.in_bytes == 0


def test_file_in_the_way_counts_as_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    kernel = os.statvfs(tmp_path)
    assert read_disk(tmp_path / "file/models").total.in_bytes == kernel.f_blocks * kernel.f_frsize
