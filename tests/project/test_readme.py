"""The README is run: what it tells a reader to type works, on real daemons on loopback.

Each machine of the text is a home directory of its own; `scp`, `ssh` and `mail` are small scripts
that work on those. Ports are those of this test, and the generated model stands for the demo
model, which would have to be downloaded.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from skulkd.settings.files import write_atomic
from tests.cluster_live.cluster import free_port
from tests.daemon_process import NO_HUB, ROOT, wait_until
from tests.project.console_blocks import Typed, console_commands

README = (ROOT / "README.md").read_text(encoding="utf-8")
DEADLINE_S = 300.0
# What stands for what cannot be had here: no download, no clean machine.
REPLACED = {
    "skulk/SmolLM2-135M-Instruct": "skulk/tiny-llama",
    "SmolLM2": "tiny-llama",
    "model pull demo": "model pull tiny",
    "ui --serve": "ui --serve 127.0.0.1:0",
}
NOT_TYPED = ("make demo", ". .venv/bin/activate")
# A loaded test machine may well have something to complain about.
MAY_FIND_PROBLEMS = ("skulkctl doctor",)
SHIMS = {
    "scp": """#!/usr/bin/env python3
import pathlib, shutil, sys
def place(name):
    host, colon, path = name.partition(":")
    return pathlib.Path("@BASE@", host, path) if colon else pathlib.Path(name)
source, target = map(place, sys.argv[1:])
shutil.copy(source, target)
""",
    "ssh": """#!/bin/sh
host=$1; shift
cd "@BASE@/$host" && exec sh -c "$*"
""",
    "mail": "#!/bin/sh\nexec cat\n",
}


@dataclass
class Machines:
    """Homes by host name, the ports that their daemons get, and what is running."""

    base: Path
    ports: dict[str, tuple[int, int]] = field(default_factory=dict)
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def home(self, host: str) -> Path:
        home = self.base / (host or "reader")
        home.mkdir(exist_ok=True)
        return home

    def environ(self, host: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKULK_", "XDG_", "HF_"))}
        api, fabric = self.ports.get(host, (0, 0))
        own = {
            "HOME": str(self.home(host)),
            "PATH": f"{self.base}/bin:{Path(sys.executable).parent}:{kept['PATH']}",
            "HF_ENDPOINT": NO_HUB,
            "MLX_DISABLE_COMPILE": "1",
            "TERM": "xterm",
            "SKULK_NODE_NAME": host,
            "SKULK_API_LISTEN": f"127.0.0.1:{api}",
            "SKULK_FABRIC_LISTEN": f"127.0.0.1:{fabric}",
            "SKULK_ENDPOINT": f"http://127.0.0.1:{api}",
            "SKULK_LIBP2P_NAMESPACE": f"readme-{os.getpid()}",
        }
        return {**kept, **(own if host else {k: own[k] for k in list(own)[:5]})}

    def text(self, typed: Typed) -> str:
        """The command with the addresses of this test."""
        command = typed.command
        for old, new in REPLACED.items():
            command = command.replace(old, new)
        for host, (api, fabric) in self.ports.items():
            command = command.replace(f"{host}:52415", f"127.0.0.1:{api}")
            command = command.replace(f"{host}:52416", f"127.0.0.1:{fabric}")
        api = self.ports.get(typed.host, (0, 0))[0]
        return command.replace("0.0.0.0:52415", f"127.0.0.1:{api}")

    def type(self, typed: Typed) -> None:
        """Run one command to the end it should have."""
        command = self.text(typed)
        if command.startswith("skulkd run"):
            self.start(typed.host, command)
        elif command.endswith("--follow") or "--serve" in command:
            self.follow(typed, command)
        elif command == "skulkctl top":
            self.look(typed, command)
        else:
            self.run(typed, command)

    def run(self, typed: Typed, command: str) -> None:
        done = subprocess.run(
            ["bash", "-c", command], env=self.environ(typed.host), cwd=self.home(typed.host),
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        fine = (0, 7) if command.startswith(MAY_FIND_PROBLEMS) else (0,)
        assert done.returncode in fine, (command, done.stdout, done.stderr)

    def start(self, host: str, command: str) -> None:
        log = self.home(host) / "skulkd.log"
        with log.open("wb") as stream:
            self.daemons[host] = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], env=self.environ(host), cwd=self.home(host),
                stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip
        wait_until(lambda: b" listening on http" in log.read_bytes(), f"{host} to listen", 120)

    def follow(self, typed: Typed, command: str) -> None:
        child = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], env=self.environ(typed.host),
            cwd=self.home(typed.host), stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stdout.readline(), command
            child.send_signal(signal.SIGINT)
            assert child.wait(60) in (0, 130)
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()

    def look(self, typed: Typed, command: str) -> None:
        """A screen that is left with a key."""
        ours, theirs = pty.openpty()
        child = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], env=self.environ(typed.host),
            cwd=self.home(typed.host), stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        try:
            os.close(theirs)
            assert "kite1" in _read_until(ours, "kite1")
            os.write(ours, b"q")
            _read_until(ours, None)
            assert child.wait(60) == 0
        finally:
            child.kill()
            child.wait()
            os.close(ours)

    def end(self) -> None:
        for daemon in self.daemons.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGTERM)
        for daemon in self.daemons.values():
            try:
                daemon.wait(60)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(daemon.pid, signal.SIGKILL)


def _read_until(fd: int, text: str | None) -> str:
    """What a terminal shows, without its escapes, until it has this text or is closed."""
    seen = b""
    ends = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends:
        ready, _, _ = select.select([fd], [], [], 1.0)
        if ready:
            try:
                piece = os.read(fd, 65536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        shown = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen).decode("utf-8", "replace")
        if text is not None and text in shown:
            return shown
    return seen.decode("utf-8", "replace")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    (tmp_path / "bin").mkdir()
    for name, program in SHIMS.items():
        shim = tmp_path / "bin" / name
        write_atomic(shim, program.replace("@BASE@", str(tmp_path)).encode())
        shim.chmod(0o755)
    found = Machines(tmp_path)
    try:
        yield found
    finally:
        found.end()


def _typed(heading: str) -> Sequence[Typed]:
    found = console_commands(README, heading)
    return [typed for typed in found if not typed.command.startswith(NOT_TYPED)]


@pytest.mark.timeout(900)
def test_the_first_five_minutes(machines: Machines) -> None:
    """One machine: the reader sits at it, and everything has its usual place."""
    machines.ports["kite1"] = (free_port(), free_port())
    for typed in _typed("The first five minutes"):
        machines.type(Typed("kite1", typed.command))


@pytest.mark.timeout(1200)
def test_a_cluster(machines: Machines) -> None:
    for host in ("kite1", "kite2", "kite3"):
        machines.ports[host] = (free_port(), free_port())
        machines.home(host)
    # There is no LAN to be found on: kite2 is told of kite1 where multicast would tell it.
    config = machines.home("kite2") / ".config" / "skulk" / "skulk.yaml"
    config.parent.mkdir(parents=True, mode=0o700)
    peer = f"127.0.0.1:{machines.ports['kite1'][1]}"
    config.write_text(f"cluster:\n  peers: [{peer!r}]\n", encoding="utf-8")
    (machines.home("") / "skulk.yaml").write_text("tracing: {retention_days: 3}\n")
    for typed in [*_typed("A cluster"), *_typed("For scripts")]:
        machines.type(typed)


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("$ a b   # why", Typed("", "a b")),
        ("kite1$ a --b 'c # d'", Typed("kite1", "a --b 'c # d'")),
        ('$ x "$(y)" | z', Typed("", 'x "$(y)" | z')),
    ],
)
def test_a_line_is_a_machine_and_a_command(line: str, typed: Typed) -> None:
    assert console_commands(f"## H\n```console\n{line}\n```\n", "H") == [typed]


def test_a_line_that_is_no_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a command: 'oops'"):
        console_commands("## H\n```console\noops\n```\n## I\n", "H")
    with pytest.raises(ValueError, match="no heading"):
        console_commands("", "H")
