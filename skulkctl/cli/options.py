"""The options that commands share, as dataclasses: a field is an option, its value is typed.

`params_of` makes Typer's parameters of a group, `Invocation.options` its values. Annotations are
evaluated here, because Typer would evaluate their text twice at every start.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, partial
from typing import Annotated, Any, TextIO

import typer

from skulkctl.cli import values
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write


class Format(StrEnum):
    """Values of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    JSONL = "jsonl"


class ColorMode(StrEnum):
    """Values of `--color`."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def duration(value: str | float) -> float:
    """Seconds of what was typed, or of a default that is in seconds already; for `parser=`."""
    from skulkctl.output.units import parse_duration

    return parse_duration(value) if isinstance(value, str) else value


def size(value: str | int) -> int:
    """Bytes of what was typed, or of a default that is in bytes already; for `parser=`."""
    from skulkctl.output.units import parse_size

    return parse_size(value) if isinstance(value, str) else value


def moment(value: str | datetime) -> datetime:
    """A time, typed as one or as an age; for `parser=`."""
    from skulkctl.output.units import parse_duration, parse_time

    if isinstance(value, datetime):
        return value
    time = parse_time(value) if "-" in value else None
    if time is not None:
        return time
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(value))
    except ValueError:
        raise ValueError(
            f"{value!r} is neither an age nor a time; write 10m or 2026-05-04T14:00Z"
        ) from None


def _option(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, show_default=False, **settings)


@dataclass(frozen=True)
class Reach:
    """Which daemon, and how long to wait for it."""

    context: Annotated[
        str | None,
        _option(
            "--context",
            metavar="NAME",
            autocompletion=values.contexts,
            help="Use this context (or SKULK_CONTEXT).",
        ),
    ] = None
    endpoint: Annotated[
        str | None,
        _option(
            "--endpoint",
            metavar="URL",
            help="Connect to this daemon: http://HOST:PORT or HOST[:PORT] (or SKULK_ENDPOINT).",
        ),
    ] = None
    timeout_s: Annotated[
        float | None,
        _option(
            "--timeout",
            metavar="TIME",
            parser=duration,
            help="Stop waiting for a response after this time (e.g. 15s, 5m).",
        ),
    ] = None


@dataclass(frozen=True)
class Display:
    """Verbosity and colour."""

    color: Annotated[
        ColorMode | None,
        _option("--color", metavar="WHEN", help="Use colour: auto, always or never."),
    ] = None
    no_color: Annotated[bool, _option("--no-color", help="Same as --color never.")] = False
    verbose: Annotated[
        bool,
        _option(
            "-v",
            "--verbose",
            help="Print more details, such as request id, endpoint and HTTP status.",
        ),
    ] = False
    quiet: Annotated[
        bool, _option("-q", "--quiet", help="Print only names; suppress notes and hints.")
    ] = False


@dataclass(frozen=True)
class Output:
    """In which format data is printed."""

    format: Annotated[
        Format | None,
        _option(
            "-o",
            "--output",
            metavar="FORMAT",
            help="Print as table, wide, json, yaml, name or jsonl.",
        ),
    ] = None

    @property
    def is_document(self) -> bool:
        """Whether the format is a machine-readable one."""
        return self.format in (Format.JSON, Format.YAML, Format.JSONL)


@dataclass(frozen=True)
class Table:
    """Which rows and columns a table has."""

    no_headers: Annotated[bool, _option("--no-headers", help="Omit the header line.")] = False
    columns: Annotated[
        str | None,
        _option(
            "--columns",
            metavar="A,B",
            autocompletion=values.columns,
            help="Show only these columns, in this order.",
        ),
    ] = None
    sort: Annotated[
        str | None,
        _option(
            "--sort",
            metavar="COLUMN",
            autocompletion=values.columns,
            help="Sort by this column; -COLUMN sorts descending.",
        ),
    ] = None


@dataclass(frozen=True)
class Confirmation:
    """Confirmation given on the command line, for commands that change something."""

    yes: Annotated[bool, _option("-y", "--yes", help="Do not ask for confirmation.")] = False
    confirm: Annotated[
        str | None,
        _option(
            "--confirm",
            metavar="NAME",
            autocompletion=values.nodes,
            help="Confirm by name without a prompt.",
        ),
    ] = None
    dry_run: Annotated[
        bool, _option("--dry-run", help="Show what would be done without changing anything.")
    ] = False


def _print_version(ctx: typer.Context, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from skulkd import __version__

        write(f"skulkctl {__version__}\n")
        raise typer.Exit(ExitCode.DONE)


def _print_help(ctx: typer.Context, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        show_help(ctx, sys.stdout)
        raise typer.Exit(ExitCode.DONE)


def show_help(ctx: typer.Context, stream: TextIO) -> None:
    """Typer's panels for a person, plain text for a pipe."""
    if sys.stdout.isatty() and stream.isatty():
        from skulkctl.cli.help_page import print_help

        print_help(ctx)
    elif stream is sys.stdout:
        write(f"{ctx.get_help()}\n")
    else:
        stream.write(f"{ctx.get_help()}\n")


@dataclass(frozen=True)
class Version:
    """Only at the root."""

    version: Annotated[
        bool,
        _option(
            "--version",
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and exit.",
        ),
    ] = False


@dataclass(frozen=True)
class Help:
    """Instead of Typer's own option, which ends the process when the reader of its text leaves."""

    help: Annotated[
        bool,
        _option(
            "-h",
            "--help",
            is_eager=True,
            expose_value=False,
            callback=_print_help,
            help="Show this help and exit.",
        ),
    ] = False


@cache
def params_of(group: type) -> Sequence[Any]:
    """The options of a group, as Typer makes them of the dataclass's constructor."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(group)
    return convert_only_given(typer.main.get_command(app).params)


def convert_only_given(params: Sequence[Any]) -> Sequence[Any]:
    """The same parameters, without work for those that are not used.

    Typer imports pydantic and builds an adapter for each option, also when it has no value. That
    takes longer than the rest of a short command, and there is no setting against it.
    """
    for param in params:
        vars(param)["process_value"] = partial(_process, param, param.process_value)
    return params


def _process(param: Any, convert: Callable[..., Any], ctx: typer.Context, value: Any) -> Any:
    if value is None and not param.required:
        return () if param.nargs == -1 or param.multiple else None
    return convert(ctx, value)
