"""Fixtures every folder may use: real daemons that never outlive their test."""

from __future__ import annotations

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


def _factory(base: Path, started: list[DaemonProcess]) -> StartDaemon:
    def start(
        *arguments: str,
        home: Path | None = None,
        config: str | None = None,
        environ: dict[str, str] | None = None,
        wait: bool = True,
        listen: str | None = "127.0.0.1:0",
    ) -> DaemonProcess:
        if home is None:
            home = base / f"home{len(started)}"
            home.mkdir()
        if config is not None:
            (home / "skulk.yaml").write_text(config)
        process = spawn_daemon(home, *arguments, environ=environ, listen=listen)
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
