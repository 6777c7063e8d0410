"""`skulkctl help`: commands and topics."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

import typer

from skulkctl.command import new_app
from skulkctl.errors import NotFound
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import verb
from skulkctl.stdout import write

app = new_app()

EXAMPLES = """
  skulkctl help
  skulkctl help exit-codes
  skulkctl help config set
"""


@verb(app, "help", examples=EXAMPLES)
def help_(
    call: Invocation,
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="A command, or exit-codes, environment, output.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Explain a command or a topic: exit-codes, environment, output."""
    from skulkctl.topics import TOPICS

    words = topic or []
    if len(words) == 1 and words[0] in TOPICS:
        write(TOPICS[words[0]]())
        return ExitCode.DONE
    write(_command_help(words) + "\n")
    if not words:
        write(f"\nTopics: {', '.join(TOPICS)}\n")
    return ExitCode.DONE


def _command_help(words: list[str]) -> str:
    from skulkctl.command import new_context
    from skulkctl.root import build
    from skulkctl.topics import TOPICS

    command: Any = build()
    context = new_context(command, "skulkctl")
    for word in words:
        known = command.list_commands(context) if hasattr(command, "list_commands") else []
        found = command.get_command(context, word) if known else None
        if found is None:
            near = get_close_matches(word, [*known, *TOPICS], n=1)
            hints = [f"did you mean {near[0]}?"] if near else ["skulkctl help"]
            raise NotFound(f"no command or topic named {' '.join(words)}", hints=hints)
        context = new_context(found, word, context)
        command = found
    return str(context.get_help())
