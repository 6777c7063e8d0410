"""How long the CLI takes to start, against importing the libraries that it needs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.figures import Figure, alternate
from scripts.live_daemon import live_daemon

ROUNDS = 25


def run() -> list[Figure]:
    script = str(Path(sys.executable).with_name("skulkctl"))
    with live_daemon("bench") as daemon:
        # An installed program has its bytecode; from a checkout, the first round writes it.
        env = {name: v for name, v in daemon.env.items() if name != "PYTHONDONTWRITEBYTECODE"}

        def timed(*command: str) -> Callable[[], float]:
            def measure() -> float:
                started = time.perf_counter()
                subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
                return time.perf_counter() - started

            return measure

        medians = alternate(
            ROUNDS,
            {
                "typer": timed(sys.executable, "-c", "import typer"),
                "libraries": timed(sys.executable, "-c", "import typer, httpx, pydantic"),
                "version": timed(script, "--version"),
                "status": timed(script, "status", "-o", "json"),
            },
        )
    return [
        _figure("skulkctl --version", "import typer", medians["version"], medians["typer"]),
        _figure(
            "skulkctl status -o json",
            "import typer, httpx, pydantic",
            medians["status"],
            medians["libraries"],
        ),
    ]


def _figure(command: str, imports: str, taken: float, needed: float) -> Figure:
    detail = f"{taken * 1000:.0f} ms against {needed * 1000:.0f} ms, median of {ROUNDS}"
    return Figure(f"`{command}` / `{imports}`", taken / needed, 1.5, "less", detail=detail)
