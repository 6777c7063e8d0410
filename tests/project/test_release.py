"""`make release`: the version is in one place, and the parts that need no network."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skulkd import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def release() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_is_read_from_one_place(release: Any) -> None:
    source = (ROOT / "skulkd" / "__init__.py").read_text(encoding="utf-8")
    assert release.read_version(source) == __version__
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project
    assert __version__ not in re.findall(r'^version = "(.*)"', project, re.MULTILINE)


def test_the_excerpt_is_the_section_of_this_version(release: Any) -> None:
    new = "## [2.0.0] - d\n\n- a\n\n### B\n\n- b\n\n"
    text = f"# C\n\n## [Unreleased]\n\n- x\n\n{new}## [1.0.0] - d\n- c\n"
    assert release.excerpt(text, "2.0.0") == new
    assert release.excerpt(text, "1.0.0") == "## [1.0.0] - d\n- c\n"
    with pytest.raises(SystemExit, match=r"no section for 3\.0\.0"):
        release.excerpt(text, "3.0.0")
    real = release.excerpt((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)
    assert "skulkd service" in real


def test_sha256sum_accepts_the_checksums(release: Any, tmp_path: Path) -> None:
    files = [tmp_path / "b.whl", tmp_path / "a.tar.gz"]
    for file in files:
        file.write_bytes(file.name.encode())
    (tmp_path / "SHA256SUMS").write_text(release.checksums(files), encoding="utf-8")
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    subprocess.run(check, cwd=tmp_path, check=True, capture_output=True)
    files[0].write_bytes(b"changed")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_the_smoke_test_refuses_a_base_install_that_brings_mlx(release: Any) -> None:
    """This environment has the extra `node`, so it is not a base install."""
    python = Path(sys.executable)
    with pytest.raises(SystemExit, match="the base install brings mlx"):
        release.smoke_test(python, __version__, is_node=False)
    release.smoke_test(python, __version__, is_node=True)
