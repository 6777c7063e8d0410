"""The entry point, and the one place where errors become text and exit codes.

Nothing heavy is imported at the top, so that ctrl-C is quiet from the first moment.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skulkctl.exits import ExitCode

if TYPE_CHECKING:
    import typer

    from skulkctl.command import Entry
    from skulkctl.talk import Talk


def run() -> None:
    """The console script."""
    _start_fast()
    try:
        _forgive_narrow_encodings()
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    sys.exit(code)


def main(argv: Sequence[str], entries: Mapping[str, Entry] | None = None) -> int:
    """Run one command line and give its exit code; `entries` replaces the command table."""
    import typer

    from skulkctl.errors import CliError
    from skulkctl.screen import wants_colour
    from skulkctl.stdout import flush
    from skulkctl.talk import Talk

    talk = Talk(
        verbose=not {"-v", "--verbose"}.isdisjoint(argv),
        colour=wants_colour(
            "never" if "--no-color" in argv else "auto", os.environ, sys.stderr.isatty()
        ),
    )
    try:
        code = _dispatch(argv, entries)
        flush()
    except CliError as error:
        talk.error(error)
        return error.exit_code
    except typer.TyperException as error:
        return _usage(error, talk)
    except Exception as error:  # noqa: BLE001 (the last resort: a report instead of a traceback)
        from skulkctl.crash import report_crash

        talk.error(report_crash(error, os.environ))
        if talk.verbose:
            sys.excepthook(type(error), error, error.__traceback__)
        return ExitCode.FAILED
    return code


def _dispatch(argv: Sequence[str], entries: Mapping[str, Entry] | None) -> int:
    from skulkctl.root import COMMANDS, build
    from skulkctl.stdout import FULL, discard, give_up

    command = build(COMMANDS if entries is None else entries)
    try:
        code = command.main(list(argv), prog_name="skulkctl", standalone_mode=False)
    except SystemExit:
        # Typer leaves like this when the reader of its help text has gone away.
        discard()
        return ExitCode.DONE
    except OSError as error:
        if error.errno not in FULL:
            raise
        give_up(error)
        return ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.DONE


def _usage(error: typer.TyperException, talk: Talk) -> int:
    """A command line that Typer did not understand, in our words."""
    from skulkctl.errors import UsageMistake

    message = error.format_message().strip()
    context = getattr(error, "ctx", None)
    if message.startswith("Usage:"):
        sys.stderr.write(f"{message}\n")
        return ExitCode.USAGE
    message = message[:1].lower() + message[1:].rstrip(".")
    path = context.command_path if context is not None else "skulkctl"
    talk.error(UsageMistake(message, hints=[f"{path} --help"]))
    return ExitCode.USAGE


def _start_fast() -> None:
    """Leave out work that a short-lived process does not need, while modules are imported."""
    # A command is over before its garbage matters.
    gc.set_threshold(50_000)
    # pydantic looks through every installed package for plugins, and there are none for us.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def _forgive_narrow_encodings() -> None:
    """A locale that cannot show a letter gets an escape, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
