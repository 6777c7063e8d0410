"""The real demo model: downloaded once for this machine, imported once for a test session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from skulkd.settings.paths import Paths, find_paths
from skulkd.store.atomic_directory import no_report
from skulkd.store.imports.demo_model import DEMO_PACKAGE, unpack_gguf
from skulkd.store.imports.tiny_model import make_tiny_model
from tests.store.child import Child, run_child
from tests.store.wheels import kept_wheel


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
    """The wheel of the demo model."""
    return kept_wheel(DEMO_PACKAGE)


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
