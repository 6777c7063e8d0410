"""`make picture`: the README's terminal picture, drawn by rich from a real daemon's answers."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from live_daemon import LiveDaemon, live_daemon
from rich.console import Console
from rich.text import Text

COMMANDS = (["status"], ["nodes"], ["doctor"])
TARGET = Path("docs/images/terminal.svg")
COLUMNS = 112


def output_of(daemon: LiveDaemon, arguments: list[str]) -> str:
    """What the command prints on a terminal, colours included."""
    done = subprocess.run(
        [sys.executable, "-m", "skulkctl", *arguments, "--color", "always"],
        env=daemon.env | {"COLUMNS": str(COLUMNS)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def main() -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    with live_daemon("kite1") as daemon:
        for arguments in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), f"skulkctl {' '.join(arguments)}"))
            console.print(Text.from_ansi(output_of(daemon, arguments)))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    # The picture must look the same where nothing may be fetched: no web fonts.
    svg = re.sub(
        r"@font-face \{.*?\}\s*", "", console.export_svg(title="skulkctl"), flags=re.DOTALL
    )
    TARGET.write_text(svg, encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
