"""The public CI definition: each system that we claim runs `make test`, and the tests can run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[Any, Any] = yaml.safe_load(
    (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
)
JOBS: dict[str, Any] = WORKFLOW["jobs"]
RUNNERS = {
    "linux-x86_64": "ubuntu-24.04",
    "linux-aarch64": "ubuntu-24.04-arm",
    "macos": "macos-15",
}
LINUX_ONLY = re.compile(
    r"[\"']/proc/|SOCK_SEQPACKET|pidfd|netns|/dev/net/tun|\"mount\"|127\.0\.0\.[2-9]\b|/dev/shm"
)
STATED = re.compile(
    r"sys\.platform|pytest\.skip\(|skipif\(|lan_missing|Zygote\.supported|tests\.settings\.mounts"
)


def test_there_is_one_job_for_each_system() -> None:
    assert {name: job["runs-on"] for name, job in JOBS.items()} == RUNNERS


@pytest.mark.parametrize("name", RUNNERS)
def test_a_job_runs_make_test_and_nothing_else_of_ours(name: str) -> None:
    commands = [step["run"] for step in JOBS[name]["steps"] if "run" in step]
    assert commands == ["make test"]
    assert 0 < JOBS[name]["timeout-minutes"] <= 120
    assert JOBS[name]["strategy"]["fail-fast"] is False


@pytest.mark.parametrize("name", RUNNERS)
def test_a_job_begins_with_the_oldest_python_that_we_support(name: str) -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = about["project"]["requires-python"].removeprefix(">=")
    versions = JOBS[name]["strategy"]["matrix"]["python"]
    assert all(isinstance(version, str) for version in versions), "3.10 must not become 3.1"
    assert versions[0] == oldest


def test_the_page_about_platforms_names_every_job() -> None:
    page = (ROOT / "docs/platforms.md").read_text(encoding="utf-8")
    assert [name for name in RUNNERS if f"`{name}`" not in page] == []


def _uses_linux() -> list[Path]:
    own = Path(__file__)
    files = (path for path in (ROOT / "tests").rglob("*.py") if path != own)
    return sorted(path for path in files if LINUX_ONLY.search(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", _uses_linux(), ids=lambda path: path.name)
def test_what_only_linux_has_is_skipped_elsewhere_with_a_reason(path: Path) -> None:
    assert STATED.search(path.read_text(encoding="utf-8")), "say on which system it can run"
