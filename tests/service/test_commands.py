"""`skulkd service` on a machine without a running service manager, and its refusals."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skulkd.service.definition import Account
from skulkd.service.host import SYSTEMD_RUNS, ServiceError, check_access
from tests.daemon_process import daemon_environ

AS_USER = [shutil.which("unshare") or "unshare", "--user", "--map-user=1000"]


def skulkd(home: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """As an ordinary user; root is shown to itself as one."""
    enter = AS_USER if os.geteuid() == 0 else []
    return run(home, [*enter, sys.executable, "-m", "skulkd", *arguments], **environ)


def run(home: Path, command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=daemon_environ(home, environ), cwd=home,
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def test_a_dry_run_shows_the_unit_and_changes_nothing(tmp_path: Path) -> None:
    done = skulkd(tmp_path, "service", "install", "--dry-run", "--peer", "kite1:52416")
    assert done.returncode == 0, done.stderr
    assert f"write {tmp_path}/.config/systemd/user/skulkd.service" in done.stdout
    assert "skulkd run --peer=kite1:52416\n" in done.stdout
    assert "run systemctl --user daemon-reload\n" in done.stdout
    assert not list(tmp_path.iterdir())


def test_secrets_of_the_shell_are_named_and_not_written(tmp_path: Path) -> None:
    done = skulkd(tmp_path, "service", "install", "--dry-run", HF_TOKEN="hf_verysecret")
    assert "HF_TOKEN" in done.stderr
    assert "hf_verysecret" not in done.stdout + done.stderr


@pytest.mark.skipif(SYSTEMD_RUNS.is_dir(), reason="systemd runs on this machine")
def test_without_systemd_the_error_names_another_way(tmp_path: Path) -> None:
    done = skulkd(tmp_path, "service", "install")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "another supervisor" in done.stderr
    assert not list(tmp_path.iterdir())
    missing = skulkd(tmp_path, "service", "install", PATH="/nonexistent")
    assert "this machine has no systemd" in missing.stderr


@pytest.mark.parametrize("command", ["status", "logs"])
def test_a_service_that_is_not_installed_is_reported(tmp_path: Path, command: str) -> None:
    done = skulkd(tmp_path, "service", command)
    assert done.returncode == 4
    assert "not installed" in done.stderr
    assert "hint: skulkd service install" in done.stderr


def test_bad_options_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = skulkd(tmp_path, "service", "install", "--dry-run", "--listen", "nowhere:x")
    assert (done.returncode, done.stdout) == (78, "")
    assert "--listen" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "runs as root"),
        (("--system",), "--system needs --user"),
        (("--user", "nobody"), "--user needs --system"),
        (("--system", "--user", "no-such-user"), "no user named no-such-user"),
    ],
)
def test_root_must_say_who_runs_the_daemon(
    tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    command = [sys.executable, "-m", "skulkd", "service", "install", "--dry-run", *options]
    done = run(tmp_path, command)
    assert done.returncode in (1, 2)
    assert reason in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_program_that_the_user_cannot_run_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "skulkd"
    script.write_text("#!/bin/sh\n", encoding="utf-8")
    script.chmod(0o700)
    with pytest.raises(ServiceError, match="user daemon cannot run"):
        check_access(Account("daemon", 1, tmp_path), [str(script), "run"])
    check_access(Account("daemon", 1, tmp_path), ["/bin/true", "run"])


def test_an_ordinary_user_may_look_at_a_service_of_the_machine(tmp_path: Path) -> None:
    done = skulkd(tmp_path, "service", "install", "--system", "--user", "nobody", "--dry-run")
    assert "User=nobody" in done.stdout, done.stderr
