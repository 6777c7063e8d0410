"""What is written for systemd and launchd, and that the command in it starts a daemon."""

from __future__ import annotations

import os
import plistlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from skulkd.flags import RunFlags
from skulkd.service.definition import Account, Service, kept_environment
from skulkd.service.host import daemon_command
from skulkd.service.launchd import Launchd
from skulkd.service.steps import Remove, Run, Write, install_steps
from skulkd.service.systemd import Systemd
from tests.daemon_process import NO_HUB, DaemonProcess, attach

FLAGS = RunFlags(
    listen="127.0.0.1:0", name="big kite", fabric_listen="127.0.0.1:0",
    peers=("127.0.0.1:9", "127.0.0.1:10"), no_worker=True,
)  # fmt: skip


def service(
    home: Path, flags: RunFlags = FLAGS, *, system: bool = False, uid: int = 1000
) -> Service:
    return Service(
        command=daemon_command(flags.arguments()),
        environment={"SKULK_HOME": str(home / "50% $x")},
        account=Account("kim", uid, home),
        system=system,
        secrets_file=home / "skulkd.env",
    )


@pytest.fixture
def started() -> Iterator[list[DaemonProcess]]:
    daemons: list[DaemonProcess] = []
    yield daemons
    for daemon in daemons:
        daemon.kill()


def verify(unit: str, directory: Path, *options: str) -> str:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (Debian: apt-get install systemd)")
    file = directory / "skulkd.service"
    file.write_text(unit, encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", *options, str(file)]
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(directory)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    return done.stdout + done.stderr if done.returncode else about(done.stderr)


def about(messages: str) -> str:
    return "\n".join(line for line in messages.splitlines() if "skulkd.service" in line)


def test_systemd_accepts_the_unit_of_a_user(tmp_path: Path) -> None:
    assert verify(Systemd().render(service(tmp_path)), tmp_path, "--user") == ""


def test_systemd_accepts_the_unit_of_the_machine(tmp_path: Path) -> None:
    unit = Systemd().render(service(tmp_path, system=True)).replace("User=kim", "User=daemon")
    assert verify(unit, tmp_path) == ""


def test_systemd_would_refuse_a_mistake(tmp_path: Path) -> None:
    """The two tests above can fail."""
    unit = Systemd().render(service(tmp_path)).replace("ExecStart=/", "ExecStart=")
    assert verify(unit, tmp_path, "--user") != ""


def test_units_restart_but_not_for_bad_configuration(tmp_path: Path) -> None:
    for system in (False, True):
        lines = Systemd().render(service(tmp_path, system=system)).splitlines()
        assert "Restart=on-failure" in lines
        assert "RestartPreventExitStatus=78" in lines
        assert "NoNewPrivileges=yes" in lines


def test_only_the_unit_of_the_machine_names_a_user(tmp_path: Path) -> None:
    assert "User=" not in Systemd().render(service(tmp_path))
    unit = Systemd().render(service(tmp_path, system=True)).splitlines()
    assert "User=kim" in unit
    assert "CapabilityBoundingSet=" in unit
    root = Systemd().render(service(tmp_path, system=True, uid=0)).splitlines()
    assert "CapabilityBoundingSet=" not in root, (
        "root without capabilities could not read its files"
    )


def test_the_property_list_is_complete(tmp_path: Path) -> None:
    job = plistlib.loads(Launchd().render(service(tmp_path, system=True)).encode())
    assert job["ProgramArguments"] == daemon_command(FLAGS.arguments())
    assert job["UserName"] == "kim"
    assert (job["RunAtLoad"], job["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert job["EnvironmentVariables"]["SKULK_HOME"] == str(tmp_path / "50% $x")
    assert "UserName" not in plistlib.loads(Launchd().render(service(tmp_path)).encode())


def launchd_job(home: Path, flags: RunFlags) -> DaemonProcess:
    """Start what launchd would start, with no more of an environment."""
    job = plistlib.loads(Launchd().render(service(home, flags)).encode())
    environ = {**job["EnvironmentVariables"], "HOME": str(home), "HF_ENDPOINT": NO_HUB}
    return attach(
        home, job["ProgramArguments"], environ, cwd=Path(job["WorkingDirectory"]), fresh=True
    )


def test_the_job_of_launchd_runs_with_the_given_options(
    tmp_path: Path, started: list[DaemonProcess]
) -> None:
    daemon = launchd_job(tmp_path, FLAGS)
    started.append(daemon)
    daemon.wait_ready()
    assert daemon.ready_lines[0].name == "big kite"
    assert (tmp_path / "50% $x" / "cluster.secret").exists()
    daemon.signal(signal.SIGTERM)
    assert daemon.wait_exit() == 0


def test_launchd_is_told_not_to_start_bad_configuration_again(
    tmp_path: Path, started: list[DaemonProcess]
) -> None:
    daemon = launchd_job(tmp_path, RunFlags(listen="nowhere:x"))
    started.append(daemon)
    assert daemon.wait_exit() == 0
    assert "nowhere:x" in daemon.said()


@pytest.mark.parametrize("manager", [Systemd(), Launchd()], ids=["systemd", "launchd"])
@pytest.mark.parametrize("system", [False, True])
def test_an_installed_service_is_not_written_again(
    tmp_path: Path, manager: Systemd | Launchd, system: bool
) -> None:
    wanted = service(tmp_path, system=system)
    first = install_steps(manager, wanted, None)
    assert first[0] == Write(manager.file(wanted), manager.render(wanted))
    again = install_steps(manager, wanted, manager.render(wanted))
    assert again
    assert all(isinstance(step, Run) for step in again)
    assert not [step for step in again if {"restart", "bootout"} & set(step.argv)]  # type: ignore[union-attr]
    assert Remove(manager.file(wanted)) in manager.remove(wanted)


def test_arguments_give_the_same_flags_wherever_they_are_run(tmp_path: Path) -> None:
    flags = RunFlags(config=Path("skulk.yaml"), tls=False, quiet=True, api_port=0)
    assert flags.arguments() == [
        "--api-port=0", f"--config={Path.cwd() / 'skulk.yaml'}", "--no-tls", "--quiet",
    ]  # fmt: skip


def test_no_secret_is_kept_from_the_environment() -> None:
    environ = {
        "SKULK_HOME": "/a",
        "HF_TOKEN": "t",
        "SKULK_CLUSTER_SECRET": "s",
        "XDG_DATA_HOME": "/d",
    }
    assert kept_environment(environ, system=False) == {"SKULK_HOME": "/a", "XDG_DATA_HOME": "/d"}
    assert kept_environment(environ, system=True) == {"SKULK_HOME": "/a"}
