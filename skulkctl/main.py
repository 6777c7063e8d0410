"""The entry point, and the one place where errors become text and exit codes.

Nothing heavy is imported at the top, so that ctrl-C is quiet from the first moment.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skulkctl.exits import ExitCode

if TYPE_CHECKING:
    import typer

    from skulkctl.cli.command import Entry
    from skulkctl.errors import CliError
    from skulkctl.output.messages import Messages


def run() -> None:
    """The console script."""
    _start_fast()
    try:
        _forgive_narrow_encodings()
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    # Python looks for garbage once more when it exits, among everything that was imported.
    gc.freeze()
    sys.exit(code)


def main(argv: Sequence[str], entries: Mapping[str, Entry] | None = None) -> int:
    """Run one command line and give its exit code; `entries` replaces the command table."""
    import typer

    from skulkctl.cli.completion import prepare
    from skulkctl.cli.invocation import Session
    from skulkctl.cli.root import COMMANDS, build
    from skulkctl.errors import CliError
    from skulkctl.output.stdout import flush

    prepare(os.environ)
    session, crash = Session(), None
    command = build(COMMANDS if entries is None else entries)
    try:
        code = command.main(list(argv), prog_name="skulkctl", standalone_mode=False, obj=session)
        flush()
    except CliError as error:
        problem = error
    except typer.TyperException as error:
        problem = _usage_mistake(error)
    except Exception as error:  # noqa: BLE001 (the last resort: a report instead of a traceback)
        from skulkctl.cli.crash import report_crash

        crash, problem = error, report_crash(error, os.environ)
    else:
        return code if isinstance(code, int) else ExitCode.DONE
    messages = session.messages or _messages_of(argv)
    messages.error(problem)
    if crash is not None and messages.verbose:
        sys.excepthook(type(crash), crash, crash.__traceback__)
    return problem.exit_code


def _messages_of(argv: Sequence[str]) -> Messages:
    """For mistakes in the command line itself, which has not been understood then."""
    from skulkctl.output.messages import Messages
    from skulkctl.output.terminal import wants_colour

    when = "never" if "--no-color" in argv else "auto"
    return Messages(
        verbose=not {"-v", "--verbose"}.isdisjoint(argv),
        colour=wants_colour(when, os.environ, sys.stderr.isatty()),
    )


def _usage_mistake(error: typer.TyperException) -> CliError:
    """A command line that Typer did not understand, in our words."""
    import typer

    from skulkctl.errors import UsageMistake

    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "skulkctl"
    if isinstance(error, typer.BadParameter) and error.param is not None and error.message:
        # pydantic, which Typer converts values with, puts these words before our own.
        reason = error.message.removeprefix("Value error, ")
        message = f"{_name_of(error.param)}: {reason}"
    else:
        message = error.format_message()
        message = message[:1].lower() + message[1:]
    return UsageMistake(message.strip().rstrip("."), hints=[f"{path} --help"])


def _name_of(param: Any) -> str:
    """`--output` or `NODE`."""
    from skulkctl.cli.command import argument_name, is_argument

    return argument_name(param) if is_argument(param) else max(param.opts, key=len)


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
