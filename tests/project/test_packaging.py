"""What the base install brings, and what it must not."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
START = {"skulkd": "skulkd.__main__", "skulkctl": "skulkctl.main"}


def _requirements(names: list[str]) -> Iterator[str]:
    """The distributions that pip would install for these, extras left out."""
    seen: set[str] = set()
    while names:
        name = re.split(r"[^\w.-]", names.pop().strip())[0].lower()
        if name in seen:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a requirement of another platform
        seen.add(name)
        yield name
        names += [r for r in distribution.requires or [] if "extra ==" not in r]


@pytest.fixture(scope="module")
def base_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site directory that holds what the base install would hold, and nothing else."""
    site = tmp_path_factory.mktemp("base")
    for name in _requirements(list(PROJECT["dependencies"])):
        files = importlib.metadata.distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            target = Path(str(importlib.metadata.distribution(name).locate_file(top)))
            if not (site / top).exists():
                (site / top).symlink_to(target)
    for package in START:
        (site / package).symlink_to(ROOT / package)
    return site


def _run(site: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.argv[0] = {program!r}; from {START[program]} import run; run()"
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments],
        env={"PYTHONPATH": str(site), "PATH": os.environ["PATH"], "HOME": str(site)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=site,
    )


def test_base_dependencies_hold_no_server_and_no_mlx() -> None:
    names = {re.split(r"[^\w.-]", d)[0] for d in PROJECT["dependencies"]}
    fixed = {"httpx", "platformdirs", "pydantic", "pyyaml", "rich", "textual", "typer"}
    assert names == fixed | {"cryptography", "zstandard"}


def test_an_extra_brings_exactly_one_build_of_mlx() -> None:
    extras = PROJECT["optional-dependencies"]
    builds = {
        name: {found for line in lines for found in re.findall(r"^mlx(?:\[\w+\])?(?=[>=;])", line)}
        for name, lines in extras.items()
    }
    assert builds["daemon"] == set(), "it would come along with every build"
    assert builds["cuda"] == {"mlx[cuda]"}
    assert builds["node"] == {"mlx", "mlx[cpu]"}
    systems = {line for line in extras["node"] if line.startswith("mlx")}
    assert all("sys_platform" in line for line in systems), "one for each system"


@pytest.mark.parametrize("arguments", [("run",), ("run", "--listen", "127.0.0.1:0")])
def test_skulkd_on_a_base_install_names_the_missing_extra(
    base_site: Path, arguments: tuple[str, ...]
) -> None:
    done = _run(base_site, "skulkd", *arguments)
    assert done.returncode == 1
    assert "skulk-toolkit[node]" in done.stderr
    for module in ("aiohttp", "psutil", "zenoh", "mlx"):
        assert module in done.stderr
    assert "Traceback" not in done.stderr


def test_skulkd_on_a_base_install_still_tells_its_version(base_site: Path) -> None:
    done = _run(base_site, "skulkd", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("skulkd ")


def test_skulkctl_works_on_a_base_install(base_site: Path) -> None:
    done = _run(base_site, "skulkctl", "status", "--endpoint", "127.0.0.1:1")
    assert done.returncode == 5, done.stderr
    assert "127.0.0.1:1" in done.stderr


def test_skulkctl_checks_a_configuration_on_a_base_install(base_site: Path, tmp_path: Path) -> None:
    (tmp_path / "skulk.yaml").write_text("tracing:\n  retention_day: 3\n", encoding="utf-8")
    done = _run(base_site, "skulkctl", "config", "validate", str(tmp_path / "skulk.yaml"))
    assert done.returncode == 7, done.stderr
    assert "retention_days" in done.stdout + done.stderr
