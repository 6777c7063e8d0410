"""The edge: who runs this, whether there is a service manager, and carrying out the steps."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from skulkd.service.definition import Account
from skulkd.service.launchd import Launchd
from skulkd.service.steps import Manager, Remove, Run, Step, Write
from skulkd.service.systemd import Systemd
from skulkd.settings.files import remove_durably, write_atomic

SYSTEMD_RUNS = Path("/run/systemd/system")
EXIT_FAILED = 1
EXIT_USAGE = 2


class ServiceError(Exception):
    """The command cannot be carried out; the lines are for the operator."""

    def __init__(self, exit_code: int, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.exit_code = exit_code
        self.lines = lines


def this_manager(environ: Mapping[str, str]) -> Manager:
    """The service manager of this platform, whether it runs or not."""
    return Launchd() if sys.platform == "darwin" else Systemd(environ)


def check_manager(manager: Manager, command: Sequence[str]) -> None:
    """Raises ServiceError unless services can be installed here."""
    hints = (
        f"hint: run it under another supervisor: {shlex.join(command)}",
        "hint: --dry-run shows what would be written and run",
    )
    if shutil.which(manager.program) is None:
        reason = f"this machine has no {manager.name}: {manager.program} is not installed"
        raise ServiceError(EXIT_FAILED, reason, *hints)
    if isinstance(manager, Systemd) and not SYSTEMD_RUNS.is_dir():
        reason = "systemd is installed but does not run on this machine, as in most containers"
        raise ServiceError(EXIT_FAILED, reason, *hints)


def find_account(environ: Mapping[str, str], user: str | None, *, system: bool) -> Account:
    """Who the daemon runs as. Raises ServiceError when that is not clear, or would be root."""
    if not system:
        return _own_account(environ, user)
    if user is None:
        raise ServiceError(
            EXIT_USAGE,
            "--system needs --user NAME: the account that the daemon runs as",
            "hint: useradd --system --create-home --home-dir /var/lib/skulk skulk",
            "hint: skulkd service install --system --user skulk",
        )
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise ServiceError(EXIT_FAILED, f"no user named {user} on this machine") from None
    return Account(entry.pw_name, entry.pw_uid, Path(entry.pw_dir))


def _own_account(environ: Mapping[str, str], user: str | None) -> Account:
    if user is not None:
        raise ServiceError(EXIT_USAGE, "--user needs --system: other services are your own")
    uid = os.geteuid()
    if uid == 0:
        raise ServiceError(
            EXIT_USAGE,
            "as root this would install a daemon that runs as root",
            "hint: run it as the user who owns the models",
            "hint: or for the whole machine: skulkd service install --system --user NAME",
        )
    name = environ.get("USER") or str(uid)
    return Account(name, uid, Path(environ.get("HOME") or Path.home()))


def check_rights(*, system: bool) -> None:
    """Raises ServiceError when the service manager would refuse."""
    if system and os.geteuid() != 0:
        raise ServiceError(EXIT_FAILED, "--system changes the machine: run it with sudo")


def daemon_command(arguments: Sequence[str]) -> list[str]:
    """The command line of this installation of skulkd."""
    script = Path(sysconfig.get_path("scripts")) / "skulkd"
    # -P: a directory named skulkd in the working directory must not be imported instead.
    program = [str(script)] if script.exists() else [sys.executable, "-P", "-m", "skulkd"]
    return [*program, "run", *arguments]


def check_access(account: Account, command: Sequence[str]) -> None:
    """Raises ServiceError when that user cannot run the program, as when it is in root's home."""
    if account.uid == os.geteuid():
        return
    program = [*command[: command.index("run")], "--version"]
    try:
        subprocess.run(program, user=account.uid, check=True, capture_output=True, cwd="/")
    except (OSError, subprocess.CalledProcessError) as error:
        raise ServiceError(
            EXIT_FAILED,
            f"user {account.name} cannot run {command[0]}: {error}",
            "hint: install skulk-toolkit[node] where that user can read it, such as /opt/skulk",
        ) from error


def present_text(file: Path) -> str | None:
    """What is in a file now; None without one."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def carry_out(steps: Sequence[Step]) -> None:
    """Do them in order. Raises ServiceError at the first that fails."""
    for step in steps:
        try:
            _do(step)
        except OSError as error:
            raise ServiceError(EXIT_FAILED, f"{next(step.lines())}: {error.strerror}") from error


def _do(step: Step) -> None:
    match step:
        case Write(file, text):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, text.encode(), mode=0o644)
        case Remove(file):
            remove_durably(file)
        case Run(argv, may_fail):
            done = subprocess.run(argv, check=False, capture_output=True, text=True)
            if done.returncode and not may_fail:
                reasons = (done.stderr.strip() or "no message").splitlines()
                failed = f"{shlex.join(argv)} failed with exit code {done.returncode}"
                raise ServiceError(EXIT_FAILED, failed, *reasons)
