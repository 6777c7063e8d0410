"""`skulkctl completion`: the script that a shell loads, printed or installed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from skulkctl.cli import Invocation, new_app, verb
from skulkctl.cli.completion import SCRIPTS, Shell
from skulkctl.errors import UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

app = new_app()

EXAMPLES = """
  skulkctl completion install
  skulkctl completion install zsh
  skulkctl completion install --uninstall
  source <(skulkctl completion bash)
"""


class Action(StrEnum):
    """What may follow `completion`: a shell to print the script of, or `install`."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    INSTALL = "install"


@verb(app, "completion", examples=EXAMPLES)
def completion(
    call: Invocation,
    action: Annotated[
        Action | None,
        typer.Argument(
            metavar="SHELL|install",
            help="bash, zsh or fish: print its script (default: from $SHELL); install: write it.",
        ),
    ] = None,
    shell: Annotated[
        Shell | None,
        typer.Argument(
            metavar="SHELL", help="With install: for this shell (default: from $SHELL)."
        ),
    ] = None,
    uninstall: Annotated[
        bool, typer.Option("--uninstall", help="With install: remove what it wrote.")
    ] = False,
) -> int:
    """Print or install the completion script for a shell: bash, zsh or fish.

    `install` writes one file where the shell looks for completions of this user.

    Completion gets names of nodes and models from the daemon and waits at most 300 ms for them.
    """
    if action is Action.INSTALL:
        return _install(call, shell or _own_shell(call), uninstall=uninstall)
    if shell is not None or uninstall:
        raise UsageMistake(
            "a second shell and --uninstall go with install",
            hints=["skulkctl completion install --help"],
        )
    write(SCRIPTS[Shell(action) if action else _own_shell(call)])
    return ExitCode.DONE


def _install(call: Invocation, shell: Shell, *, uninstall: bool) -> int:
    from skulkctl.cli.completion_files import (
        NEXT,
        completion_file,
        remove_completion,
        write_completion,
    )

    file = completion_file(shell, call.environ)
    if uninstall:
        removed = remove_completion(file)
        write(f"removed {file}\n" if removed else f"not installed: {file} does not exist\n")
        return ExitCode.DONE
    written = write_completion(file, shell)
    write(f"{'wrote' if written else 'unchanged:'} {file}\n")
    for line in NEXT[shell]:
        call.messages.note(line)
    call.messages.hint(f"to undo: skulkctl completion install {shell} --uninstall")
    return ExitCode.DONE


def _own_shell(call: Invocation) -> Shell:
    name = Path(call.environ.get("SHELL", "")).name
    try:
        return Shell(name)
    except ValueError:
        raise UsageMistake(
            f"no completion for the shell {name or '(SHELL is not set)'}",
            f"shells: {', '.join(Shell)}",
            hints=["skulkctl completion bash"],
        ) from None
