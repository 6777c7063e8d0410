"""The service under a real systemd: installed, restarted after a crash, stopped, removed."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon_process import NO_HUB, wait_until
from tests.service.user_manager import UserManager, missing_part, user_manager

NAME = "a $HOME 50% \"kite\" 'x' ;"
FILES = "my 'files' \\ [50%]"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[UserManager]:
    if reason := missing_part():
        pytest.skip(reason)
    with user_manager(tmp_path, SKULK_HOME=str(tmp_path / FILES), HF_ENDPOINT=NO_HUB) as made:
        yield made


def install(manager: UserManager, *options: str) -> str:
    done = manager.skulkd("service", "install", "--listen", "127.0.0.1:0",
                          "--fabric-listen", "127.0.0.1:0", *options)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def addresses(manager: UserManager) -> list[str]:
    """Where the daemon said that it listens, at each of its starts."""
    file = manager.home / FILES / "logs" / "skulk.log"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return re.findall(r"listening on (http://[0-9.]+:\d+)", text)


def wait_starts(manager: UserManager, count: int) -> str:
    def started() -> bool:
        return len(addresses(manager)) >= count

    wait_until(started, f"start {count}: {manager.show('ActiveState')}")
    return addresses(manager)[-1]


def unit_file(manager: UserManager) -> Path:
    return manager.home / ".config" / "systemd" / "user" / "skulkd.service"


def test_a_service_lives_from_install_to_uninstall(manager: UserManager) -> None:
    before = {path for path in manager.home.rglob("*") if path.is_file() or path.is_symlink()}
    assert "installed" in install(manager, "--name", NAME)
    url = wait_starts(manager, 1)
    with urllib.request.urlopen(url + "/", timeout=600) as answer:
        assert json.load(answer)["nodeName"] == NAME
    first = manager.show("MainPID")
    text = unit_file(manager).read_text(encoding="utf-8")
    assert (manager.home / FILES / "cluster.secret").read_text().strip() not in text
    status = manager.skulkd("service", "status")
    assert (status.returncode, "active (running)" in status.stdout) == (0, True), status.stderr

    assert "unchanged" in install(manager, "--name", NAME)
    assert manager.show("MainPID") == first, "installing the same again must not restart it"

    assert manager.run("kill", "-KILL", first).returncode == 0
    wait_starts(manager, 2)
    assert manager.show("NRestarts") == "1"

    assert "installed" in install(manager, "--name", "other")
    wait_starts(manager, 3)

    assert manager.skulkd("service", "uninstall").returncode == 0
    assert manager.show("LoadState") == "not-found"
    left = {path for path in manager.home.rglob("*") if path.is_file() or path.is_symlink()}
    own_files = manager.home / FILES
    assert {path for path in left - before if own_files not in path.parents} == set()
    again = manager.skulkd("service", "uninstall")
    assert (again.returncode, again.stdout[:13]) == (0, "not installed")
    assert manager.skulkd("service", "status").returncode == 4


def test_bad_configuration_is_not_tried_again(manager: UserManager) -> None:
    install(manager)
    wait_starts(manager, 1)
    settings = manager.home / FILES / "skulk.yaml"
    settings.write_text("tracing:\n  retention_day: 3\n", encoding="utf-8")
    pid = int(manager.show("MainPID"))
    manager.run("kill", f"-{signal.SIGKILL.value}", str(pid))
    wait_until(lambda: manager.show("ActiveState") == "failed", "the unit to fail")
    assert manager.show("ExecMainStatus") == "78"
    refused = manager.skulkd("service", "install")
    assert refused.returncode == 78
    assert "retention_days" in refused.stderr


def test_secrets_come_from_a_file(manager: UserManager) -> None:
    home = manager.home / FILES
    home.mkdir()
    secret = "s3cret-" + os.urandom(16).hex()
    (home / "skulkd.env").write_text(f"SKULK_CLUSTER_SECRET={secret}\n", encoding="utf-8")
    install(manager)
    wait_starts(manager, 1)
    assert not (home / "cluster.secret").exists(), "the daemon made a secret of its own"
    assert secret not in unit_file(manager).read_text(encoding="utf-8")
