"""A throw-away daemon for the demo, the picture and the benchmarks.

One real `skulkd` on a free loopback port with a temporary home; gone, with its
children and its files, when the block ends.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

READY = re.compile(r"listening on (https?://\S+)")
READY_DEADLINE_S = 60.0
STOP_DEADLINE_S = 15.0


@dataclass
class LiveDaemon:
    """A running daemon: where it answers and what it has said on stderr."""

    process: subprocess.Popen[str]
    home: Path
    env: dict[str, str]
    url: str = ""
    ready_after_s: float = 0.0
    said: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid


@contextmanager
def live_daemon(
    name: str = "demo", env: Mapping[str, str] | None = None, config: str = ""
) -> Iterator[LiveDaemon]:
    """Start `skulkd run` on a free port; stop it and remove its home at the end."""
    with tempfile.TemporaryDirectory(prefix="skulk-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SKULK_")}
        daemon_env = inherited | {"SKULK_HOME": str(home)} | dict(env or {})
        if config:
            file = home / "skulk.yaml"
            file.write_text(config, encoding="utf-8")
            file.chmod(0o600)  # there may be a secret in it
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "skulkd", "run", "--listen", "127.0.0.1:0", "--name", name],
            env=daemon_env,
            cwd=home,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        daemon = LiveDaemon(process, home, daemon_env)
        try:
            daemon.url = _wait_until_ready(daemon)
            daemon.ready_after_s = time.monotonic() - started
            daemon.env["SKULK_ENDPOINT"] = daemon.url
            yield daemon
        finally:
            _stop(process)


def _wait_until_ready(daemon: LiveDaemon) -> str:
    """The URL from the daemon's ready line; its stderr goes on being drained."""
    ready = threading.Event()
    found: list[str] = []

    def drain() -> None:
        assert daemon.process.stderr is not None
        for line in daemon.process.stderr:
            daemon.said.append(line.rstrip("\n"))
            if not found and (match := READY.search(line)):
                found.append(match.group(1))
                ready.set()
        ready.set()

    threading.Thread(target=drain, daemon=True).start()
    if not ready.wait(READY_DEADLINE_S) or not found:
        raise SystemExit("error: skulkd did not start:\n  " + "\n  ".join(daemon.said))
    return found[0]


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
