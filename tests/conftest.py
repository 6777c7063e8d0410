"""Fixtures every folder may use: real daemons that never outlive their test."""

from __future__ import annotations

import gc
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.daemon_process import DaemonProcess, StartDaemon, spawn_daemon

# No test may depend on the speed of the machine or on luck: the same examples everywhere.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

# A shell that starts the suite in the background has it ignore Ctrl-C, and every process a test
# starts would inherit that; the tests of Ctrl-C mean the same everywhere.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# These take longest, mostly by waiting; a worker that begins with one at the end would end alone.
LONGEST = (
    "api/test_schemathesis.py", "soak", "observe_live", "project/test_readme.py", "sharded",
    "wire_live", "worker/test_real_groups.py", "storage/test_live_storage.py",
    "api/test_hostile_values.py", "runner/test_differential.py", "worker/test_real_runner.py",
    "placement_live", "runner/test_stuck_ranks.py", "cluster_live", "runner/test_lanes.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests first, the others as they come."""

    def place(item: pytest.Item) -> int:
        path = item.nodeid.removeprefix("tests/")
        found = (number for number, start in enumerate(LONGEST) if path.startswith(start))
        return next(found, len(LONGEST))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What was collected stays: looking through it again for garbage costs a quarter second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _garbage_is_reported_where_it_was_made() -> Iterator[None]:
    """A socket left open warns when it is collected: make that fail its own module."""
    yield
    gc.collect()


def _factory(base: Path, started: list[DaemonProcess]) -> StartDaemon:
    def start(
        *arguments: str,
        home: Path | None = None,
        config: str | None = None,
        environ: dict[str, str] | None = None,
        wait: bool = True,
        listen: str | None = "127.0.0.1:0",
        fresh: bool = False,
    ) -> DaemonProcess:
        if home is None:
            home = base / f"home{len(started)}"
            home.mkdir()
        if config is not None:
            (home / "skulk.yaml").write_text(config)
        process = spawn_daemon(home, *arguments, environ=environ, listen=listen, fresh=fresh)
        started.append(process)
        if wait:
            process.wait_ready()
        return process

    return start


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[StartDaemon]:
    """A factory of daemons; all of them are gone when the test ends."""
    started: list[DaemonProcess] = []
    try:
        yield _factory(tmp_path, started)
    finally:
        for process in started:
            process.kill()


@pytest.fixture(scope="session")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One daemon for every test that only reads."""
    started: list[DaemonProcess] = []
    try:
        yield _factory(tmp_path_factory.mktemp("shared"), started)("--name", "kite1")
    finally:
        for process in started:
            process.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; only root on Linux can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("needs root and mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
