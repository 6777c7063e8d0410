"""`skulkctl __complete`: what the completion scripts call. Not for people."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import SETTINGS, Command, new_app
from skulkctl.exits import ExitCode
from skulkctl.stdout import write

app = new_app()


@app.command(
    "__complete",
    cls=Command,
    add_help_option=False,
    context_settings={**SETTINGS, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def complete_(
    shell: Annotated[str, typer.Argument()],
    words: Annotated[list[str] | None, typer.Argument()] = None,
) -> int:
    """Print one candidate a line: value, tab, description."""
    from skulkctl.complete import complete
    from skulkctl.root import build

    typed = words or [""]
    if shell == "bash":
        typed = join_split_words([word.replace("\\", "") for word in typed])
    for value, about in complete(typed, build()):
        # Bash replaces only what follows the =, where it splits words.
        halved = shell == "bash" and value.startswith("--") and "=" in value
        shown = value.partition("=")[2] if halved else value
        write(f"{shown}\t{about}\n" if about else f"{shown}\n")
    return ExitCode.DONE


def join_split_words(words: list[str]) -> list[str]:
    """Bash hands over `--output`, `=`, `js` for `--output=js`; make it one word again."""
    joined: list[str] = []
    for word in words:
        after_equals = bool(joined) and joined[-1].startswith("--") and joined[-1].endswith("=")
        if joined and ((word == "=" and joined[-1].startswith("--")) or after_equals):
            joined[-1] += word
        else:
            joined.append(word)
    return joined
