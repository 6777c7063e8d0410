"""`skulkctl man`: the man page of a command, wherever it was installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from skulkctl.cli import Invocation, new_app, values, verb
from skulkctl.errors import CliError, NotFound
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import flush, write

app = new_app()

EXAMPLES = """
  skulkctl man
  skulkctl man config set
  skulkctl man skulkd
"""


@verb(app, "man", examples=EXAMPLES)
def man(
    call: Invocation,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            autocompletion=values.commands,
            help="A command of skulkctl, or skulkd (default: skulkctl itself).",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Show the man page of a command.

    It is found where it was installed, whatever MANPATH says. Without the program `man` it is
    shown as plain text.
    """
    page = _page(command or ["skulkctl"])
    viewer = shutil.which("man", path=call.environ.get("PATH"))
    if viewer is None:
        write(_as_text(page))
        return ExitCode.DONE
    flush()
    return subprocess.call([viewer, str(page)], env=dict(call.environ))


def _page(words: list[str]) -> Path:
    from skulkctl.manual.pages import find_page, page_name

    page = find_page(page_name(words))
    if page is not None:
        return page
    if find_page(page_name(["skulkctl"])) is None:
        raise CliError(
            "the man pages of this installation are missing",
            hints=["skulkctl help", "install the package again"],
        )
    raise NotFound(f"no man page for {' '.join(words)}", hints=["skulkctl man", "skulkctl help"])


def _as_text(page: Path) -> str:
    from skulkctl.manual.plain_text import plain_text
    from skulkctl.output.terminal import terminal_width

    width = min(terminal_width(sys.stdout) or 80, 100)
    return plain_text(page.read_text(encoding="utf-8"), width)
