"""A real daemon for tests: `python -m skulkd run` on a free loopback port, with its own home.

The process leads its own group, dies with the test run, and its stderr is always drained.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.fork_server import ROOT, Popen, die_with_parent

READY = re.compile(r"(node-[0-9a-f]{16}) \((.*)\) listening on (https?://\S+)")
START_DEADLINE_S = 300.0
STOP_DEADLINE_S = 300.0
# Nothing listens on the discard port: no test asks a hub that it did not start.
NO_HUB = "http://127.0.0.1:9"


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = 300.0) -> Any:
    """The first true value of the condition."""
    ends = time.monotonic() + deadline_s
    while True:
        if value := condition():
            return value
        if time.monotonic() > ends:
            raise AssertionError(f"waited {deadline_s:g} s in vain for: {what}")
        time.sleep(0.02)


def daemon_environ(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a daemon that sees nothing of this machine's own settings."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SKULK_", "XDG_", "MSWARM_"))
        and key not in ("HF_TOKEN", "PYTHONUNBUFFERED")
    }
    own = {"SKULK_HOME": str(home), "HOME": str(home), "PYTHONPATH": str(ROOT)}
    own["HF_ENDPOINT"] = NO_HUB
    return {**inherited, **own, **(extra or {})}


@dataclass
class Ready:
    """What a ready line says."""

    node_id: str
    name: str
    url: str


@dataclass
class DaemonProcess:
    """A daemon that was started; it may have ended since."""

    process: subprocess.Popen[bytes]
    home: Path
    stderr: list[str] = field(default_factory=list)
    stdout: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ready_lines(self) -> list[Ready]:
        found = (READY.search(line) for line in list(self.stderr))
        return [Ready(*match.groups()) for match in found if match]

    @property
    def node_id(self) -> str:
        return self.ready_lines[-1].node_id

    @property
    def url(self) -> str:
        return self.ready_lines[-1].url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str) -> Any:
        """The JSON answer of a GET."""
        with urllib.request.urlopen(self.url + path, timeout=600) as answer:
            return json.load(answer)

    def wait_ready(self, count: int = 1) -> None:
        """Wait for the ready line of the first, second … start of this process."""

        def is_ready() -> bool:
            if len(self.ready_lines) >= count:
                return True
            if self.process.poll() is not None:
                raise AssertionError(f"skulkd ended with {self.process.returncode}: {self.said()}")
            return False

        wait_until(is_ready, "the ready line", START_DEADLINE_S)

    def wait_exit(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """The exit code, once all output has been read."""
        code = self.process.wait(deadline_s)
        for reader in self.readers:
            reader.join(deadline_s)
        return code

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """End it politely; its exit code."""
        self.signal()
        return self.wait_exit()

    def said(self) -> str:
        return "\n".join(self.stderr)

    def kill(self) -> None:
        """End it and everything in its group, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_DEADLINE_S)
        if self.process.stdin is not None:
            self.process.stdin.close()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                for reader in self.readers:
                    reader.join(STOP_DEADLINE_S)
                pipe.close()


def spawn_daemon(
    home: Path,
    *arguments: str,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    listen: str | None = "127.0.0.1:0",
    enter: Callable[[], None] | None = None,
    module: str = "skulkd",
    fresh: bool = False,
) -> DaemonProcess:
    """Start a daemon without waiting for it. `enter` runs in the child before it is one.

    `fresh`: in a new interpreter, not forked from one that has imported everything.
    """
    prepare = die_with_parent if enter is None else functools.partial(_prepare, enter)
    listening = () if listen is None else ("--listen", listen)
    command = [sys.executable, "-m", module, "run", *listening, *arguments]
    return attach(
        home, command, daemon_environ(home, environ), cwd=cwd, prepare=prepare, fresh=fresh
    )


def attach(
    home: Path,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    prepare: Callable[[], None] = die_with_parent,
    fresh: bool = False,
) -> DaemonProcess:
    """Start a command that is a daemon, and read what it says."""
    start = subprocess.Popen if fresh else Popen
    process = start(
        command,
        cwd=cwd or home,
        env=environ,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=prepare,
    )
    daemon = DaemonProcess(process, home)
    for pipe, lines in ((process.stderr, daemon.stderr), (process.stdout, daemon.stdout)):
        reader = threading.Thread(target=_drain, args=(pipe, lines), daemon=True)
        reader.start()
        daemon.readers.append(reader)
    return daemon


class StartDaemon(Protocol):
    """Starts a daemon in a home of its own, or in the given one, and waits until it is ready."""

    def __call__(
        self,
        *arguments: str,
        home: Path | None = None,
        config: str | None = None,
        environ: dict[str, str] | None = None,
        wait: bool = True,
        listen: str | None = "127.0.0.1:0",
        fresh: bool = False,
    ) -> DaemonProcess: ...


def _drain(pipe: Any, lines: list[str]) -> None:
    for line in pipe:
        lines.append(line.decode("utf-8", "replace").rstrip("\n"))


def _prepare(enter: Callable[[], None]) -> None:
    die_with_parent()
    enter()
