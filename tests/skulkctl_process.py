"""`skulkctl` as an operator runs it: a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.daemon_process import daemon_environ
from tests.fork_server import Popen, run

DEADLINE_S = 600.0


class Result(NamedTuple):
    """How a run ended and what it said where."""

    code: int
    out: str
    err: str


def start_skulkctl(*arguments: str, **settings: Any) -> subprocess.Popen[Any]:
    """One that the test talks to while it runs; `settings` are those of `subprocess.Popen`."""
    return Popen([sys.executable, "-m", "skulkctl", *arguments], **settings)


def skulkctl(
    *arguments: str,
    home: Path | None = None,
    endpoint: str | None = None,
    environ: Mapping[str, str] | None = None,
    stdin: str = "",
    **settings: Any,
) -> Result:
    """Run it to its end, its streams in pipes.

    With a `home` it sees nothing of this machine's settings; without, the test's own environment.
    """
    asked = [] if endpoint is None else ["--endpoint", endpoint]
    done = run(
        [sys.executable, "-m", "skulkctl", *arguments, *asked],
        input=stdin,
        env=environ if home is None else daemon_environ(home, environ),
        text=True,
        timeout=DEADLINE_S,
        **settings,
    )
    return Result(done.returncode, done.stdout, done.stderr)
