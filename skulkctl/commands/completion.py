"""`skulkctl completion`: the script that a shell loads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import verb
from skulkctl.shells import SCRIPTS
from skulkctl.stdout import write

app = new_app()

EXAMPLES = """
  source <(skulkctl completion bash)
  skulkctl completion zsh > "${fpath[1]}/_skulkctl"
  skulkctl completion fish > ~/.config/fish/completions/skulkctl.fish
"""


@verb(app, "completion", examples=EXAMPLES)
def completion(
    call: Invocation,
    shell: Annotated[
        str | None,
        typer.Argument(metavar="SHELL", help="bash, zsh or fish; without it the one of $SHELL."),
    ] = None,
) -> int:
    """Print the completion script for a shell: bash, zsh or fish.

    Names of nodes are asked from the daemon, for at most 300 ms.
    """
    wanted = shell or Path(call.environ.get("SHELL", "")).name
    if wanted not in SCRIPTS:
        raise UsageMistake(
            f"no completion for the shell {wanted or '(SHELL is not set)'}",
            f"shells: {', '.join(SCRIPTS)}",
            hints=["skulkctl completion bash"],
        )
    write(SCRIPTS[wanted])
    return ExitCode.DONE
