"""Runs `python -m skulkd.store` and small MLX programs as the processes they are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DEADLINE_S = 300


@dataclass(frozen=True)
class Child:
    """What a finished child said."""

    status: int
    events: list[dict[str, Any]]
    stderr: str

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]


def run_child(arguments: list[str], environ: Mapping[str, str]) -> Child:
    """`python -m skulkd.store`, to its end."""
    process = subprocess.run(
        store_command(*arguments),
        cwd=ROOT,
        env=dict(environ),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    events = [json.loads(line) for line in process.stdout.splitlines()]
    return Child(process.returncode, events, process.stderr)


def store_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "skulkd.store", *arguments]


def run_mlx(program: str, *arguments: object) -> Any:
    """A program that may use MLX; it prints one JSON document as its last line."""
    process = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "MLX_DISABLE_COMPILE": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])
