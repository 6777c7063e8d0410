"""`skulkctl help`: commands and topics."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import Annotated, Any, cast

import typer

from skulkctl.cli import Invocation, new_app, values, verb
from skulkctl.cli.options import show_help
from skulkctl.errors import NotFound
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

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
            autocompletion=values.topics,
            help="A command, or one of: exit-codes, environment, output, names.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Show help for a command or a topic: exit-codes, environment, output, names."""
    from skulkctl.cli.topics import TOPICS

    words = topic or []
    if len(words) == 1 and words[0] in TOPICS:
        write(TOPICS[words[0]]())
        return ExitCode.DONE
    show_help(_context_of(words), sys.stdout)
    if not words:
        write(f"\nTopics: {', '.join(TOPICS)}\n")
    return ExitCode.DONE


def _context_of(words: list[str]) -> typer.Context:
    from skulkctl.cli.command import new_context
    from skulkctl.cli.root import build
    from skulkctl.cli.topics import TOPICS

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
    return cast(typer.Context, context)
