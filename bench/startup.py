"""How long the CLI takes to start, against importing typer alone."""

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

        def timed(*command: str) -> Callable[[], float]:
            def measure() -> float:
                started = time.perf_counter()
                subprocess.run(command, env=daemon.env, check=True, stdout=subprocess.DEVNULL)
                return time.perf_counter() - started

            return measure

        medians = alternate(
            ROUNDS,
            {
                "typer": timed(sys.executable, "-c", "import typer"),
                "version": timed(script, "--version"),
                "status": timed(script, "status", "-o", "json"),
            },
        )
    typer = medians["typer"]
    detail = f"{{:.0f}} ms against {typer * 1000:.0f} ms, median of {ROUNDS}"
    return [
        Figure(
            "`skulkctl --version` / `import typer`",
            medians["version"] / typer,
            1.5,
            "less",
            detail=detail.format(medians["version"] * 1000),
        ),
        Figure(
            "`skulkctl status -o json` / `import typer`",
            medians["status"] / typer,
            2.5,
            "less",
            detail=detail.format(medians["status"] * 1000),
        ),
    ]
