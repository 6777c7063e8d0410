"""Help for people: Typer's rich panels, and highlighted examples. Imported only for a terminal."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.panel import Panel
from rich.text import Text
from rich.theme import Theme
from typer import rich_utils

if TYPE_CHECKING:
    import typer

_TITLE = "Examples:"
_FRAME = 4
"""Cells that a panel takes of a line."""


class Example(RegexHighlighter):
    """A command line, and what is said about it after two blanks."""

    base_style = "example."
    highlights = [  # noqa: RUF012 (so declared by rich)
        r"(?P<program>\bskulkctl\b)",
        r"(?P<option>(?<=\s)--?[A-Za-z][\w-]*)",
        r"(?P<text>\"[^\"]*\"|'[^']*')",
        r"\S {2,}(?P<about>\S.*)$",
    ]


THEME = Theme(
    {
        "example.program": "bold",
        "example.option": "cyan",
        "example.text": "green",
        "example.about": "not bold dim",
    }
)


def print_help(ctx: typer.Context) -> None:
    """The page of a command or group on stdout, which is a terminal. Nothing runs after it."""
    command: Any = ctx.command
    # The root's commands are listed from its table, without importing them.
    ctx.resilient_parsing = True
    examples, command.epilog = command.epilog, None
    command.help = _without_line_ends(command.help or "")
    for param in command.params:
        if getattr(param, "is_flag", False):
            param.metavar = " "  # else every flag is said to be a <bool>
    rich_utils.rich_format_help(obj=command, ctx=ctx, markup_mode="rich")
    ctx.resilient_parsing = False
    if examples:
        _print_examples(examples)


def _without_line_ends(text: str) -> str:
    """Paragraphs of one line each, for the terminal to wrap."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _print_examples(examples: str) -> None:
    lines = examples.strip("\n").removeprefix(_TITLE).strip("\n").splitlines()
    highlight, console = Example(), Console(theme=THEME)
    body = Text("\n").join(
        highlight(line)
        for example in lines
        for line in _folded(example.removeprefix("  "), console.width - _FRAME)
    )
    console.print(Panel(body, title="Examples", title_align="left", border_style="dim"))


def _folded(example: str, room: int) -> list[str]:
    """A line that is too long, with what is said about the command below it."""
    command, gap, about = example.partition("   ")
    if len(example) <= room or not gap or not about.strip():
        return [example]
    return [command, f"    {about.strip()}"]
