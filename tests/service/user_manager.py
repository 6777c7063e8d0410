"""A real systemd for one user, in namespaces of its own: units are loaded, started and watched.

It has its own process ids, /run and cgroup, and sees the user id 1000 where the test is root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.daemon_process import wait_until
from tests.fork_server import die_with_parent

UID = 1000
SYSTEMD = Path("/lib/systemd/systemd")

_START = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
mount -t cgroup2 none /sys/fs/cgroup
mkdir "/sys/fs/cgroup/$0"
echo $$ > "/sys/fs/cgroup/$0/cgroup.procs"
unshare --user --map-user=1000 --map-group=1000 "$1" --user --unit=basic.target &
wait
"""


def missing_part() -> str | None:
    """Why such a manager cannot run here."""
    if sys.platform != "linux":
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root, to make namespaces"
    if not SYSTEMD.exists() or shutil.which("systemctl") is None:
        return "needs systemd (Debian: apt-get install systemd)"
    probe = ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "cgroup2", "none", "/mnt"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"cannot mount cgroup2: {done.stderr.strip()}" if done.returncode else None


@dataclass
class UserManager:
    """The manager and the user whose services it runs."""

    process: subprocess.Popen[bytes]
    home: Path
    environ: Mapping[str, str]

    @property
    def _pid(self) -> int | None:
        """systemd itself: below `unshare` and the shell, which is process 1 there."""
        shell = _child(self.process.pid)
        return None if shell is None else _child(shell)

    def run(
        self, *command: str, extra: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as that user would."""
        enter = ["nsenter", f"--target={self._pid}", "--mount", "--pid", "--user"]
        return subprocess.run(
            [*enter, "--preserve-credentials", "--", *command],
            env={**self.environ, **(extra or {})},
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def skulkd(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "skulkd", *arguments)

    def show(self, name: str) -> str:
        """A property of the unit."""
        shown = self.run("systemctl", "--user", "show", "--value", "-p", name, "skulkd.service")
        return shown.stdout.strip()

    def is_up(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"systemd ended with {self.process.returncode}")
        return bool(self._pid) and self.run("systemctl", "--user", "is-system-running").stdout in (
            "running\n",
            "degraded\n",
        )


def _child(pid: int) -> int | None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return int(children[0]) if children else None


@contextlib.contextmanager
def user_manager(home: Path, **environ: str) -> Iterator[UserManager]:
    """One that runs; with it ends everything it started."""
    group = f"skulk-test-{os.getpid()}"
    own = {
        "HOME": str(home),
        "USER": "kim",
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": f"/run/user/{UID}",
        **environ,
    }
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    process = subprocess.Popen(
        [*spaces, "bash", "-c", _START, group, str(SYSTEMD)],
        env=own,
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,  # noqa: PLW1509 (it only sets a signal)
    )
    manager = UserManager(process, home, own)
    try:
        wait_until(manager.is_up, "systemd --user")
        yield manager
    finally:
        process.kill()
        process.wait(300)
        _remove_group(group)


def _remove_group(name: str) -> None:
    """Empty control groups stay until they are removed, the innermost first."""
    for root in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (root / name).is_dir():
            for directory, _, _ in os.walk(root / name, topdown=False):
                wait_until(lambda path=directory: _remove(path), f"{directory} to be empty")


def _remove(directory: str) -> bool:
    try:
        os.rmdir(directory)  # noqa: PTH106 (a control group is no ordinary directory)
    except OSError:
        return False
    return True
