"""`make demo`: one real daemon, looked at the way an operator would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from live_daemon import STOP_DEADLINE_S, LiveDaemon, live_daemon

COMMANDS = (["status"], ["nodes"], ["doctor"], ["diagnose"])
CHECK_FOUND_SOMETHING = 7  # `doctor` doing its job on a machine with a problem


def say(text: str = "") -> None:
    print(text, flush=True)


def show(daemon: LiveDaemon, arguments: list[str]) -> int:
    """Run one skulkctl command against the daemon, echoed as a person would type it."""
    say(f"$ skulkctl {' '.join(arguments)}")
    done = subprocess.run(
        [sys.executable, "-m", "skulkctl", *arguments], env=daemon.env, check=False
    )
    say()
    return done.returncode


def main() -> int:
    with live_daemon() as daemon:
        say(f"skulkd answers at {daemon.url}, {daemon.ready_after_s:.1f} s after it was started\n")
        failed = [
            " ".join(arguments)
            for arguments in COMMANDS
            if show(daemon, arguments) not in (0, CHECK_FOUND_SOMETHING)
        ]
        daemon.process.terminate()
        code = daemon.process.wait(STOP_DEADLINE_S)
    say(f"skulkd stopped with exit code {code}; its files are gone.")
    if failed or code:
        print(f"error: the demo failed: {', '.join(failed) or 'skulkd'}", file=sys.stderr)
        return 1
    programs = os.path.relpath(Path(sys.executable).parent)
    say(f"\nNow with your own:\n  {programs}/skulkd run\n  {programs}/skulkctl status")
    return 0


if __name__ == "__main__":
    sys.exit(main())
