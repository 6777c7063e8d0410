"""The common options, declared once, and the `verb` decorator that puts them on commands.

Commands name the groups they want and receive one `Invocation` instead of ten arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from skulkctl.command import Command
from skulkctl.errors import CliError
from skulkctl.exits import ExitCode
from skulkctl.stdout import write

Options = Mapping[str, inspect.Parameter]


def options(function: Callable[..., None]) -> Options:
    """Make a group of options out of a function's parameters."""
    return inspect.signature(function, eval_str=True).parameters


def _option(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, show_default=False, **settings)


@options
def REACH(
    context: Annotated[
        str | None,
        _option("--context", metavar="NAME", help="Use this context (or SKULK_CONTEXT)."),
    ] = None,
    endpoint: Annotated[
        str | None,
        _option(
            "--endpoint",
            metavar="URL",
            help="Ask this address, http://HOST:PORT or HOST[:PORT] (or SKULK_ENDPOINT).",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        _option("--timeout", metavar="TIME", help="Longest wait for an answer, as 15s or 5m."),
    ] = None,
) -> None:
    """Which daemon, and how long to wait for it."""


@options
def TALK(
    color: Annotated[
        str | None,
        _option("--color", metavar="WHEN", help="Colour: auto, always or never."),
    ] = None,
    no_color: Annotated[bool, _option("--no-color", help="Same as --color never.")] = False,
    verbose: Annotated[
        bool,
        _option("-v", "--verbose", help="Say more: request id, endpoint, HTTP status."),
    ] = False,
    quiet: Annotated[
        bool, _option("-q", "--quiet", help="Print names only, and no notes or hints.")
    ] = False,
) -> None:
    """How much to say, and in which colours."""


@options
def FORMAT(
    output: Annotated[
        str | None,
        _option("-o", "--output", metavar="FORMAT", help="table, wide, json, yaml, name or jsonl."),
    ] = None,
) -> None:
    """In which format data is printed."""


@options
def TABLE(
    no_headers: Annotated[bool, _option("--no-headers", help="No header line in tables.")] = False,
    columns: Annotated[
        str | None,
        _option("--columns", metavar="A,B", help="Show these columns in this order."),
    ] = None,
    sort: Annotated[
        str | None,
        _option("--sort", metavar="COLUMN", help="Order by a column; -COLUMN turns it around."),
    ] = None,
) -> None:
    """Which rows and columns a table has."""


@options
def CONFIRM(
    yes: Annotated[bool, _option("-y", "--yes", help="Do not ask for confirmation.")] = False,
    confirm: Annotated[
        str | None,
        _option("--confirm", metavar="NAME", help="Confirm by name without a prompt."),
    ] = None,
    dry_run: Annotated[
        bool, _option("--dry-run", help="Show what would happen and change nothing.")
    ] = False,
) -> None:
    """Answers given in advance, for commands that change something."""


@options
def SAMPLING(
    max_tokens: Annotated[
        int | None, _option("--max-tokens", metavar="N", min=1, help="Longest answer.")
    ] = None,
    temperature: Annotated[
        float | None,
        _option("--temperature", metavar="X", min=0, help="0 always takes the likeliest token."),
    ] = None,
    top_p: Annotated[
        float | None,
        _option("--top-p", metavar="X", min=0, max=1, help="Choose among the likeliest X of all."),
    ] = None,
    seed: Annotated[
        int | None, _option("--seed", metavar="N", help="Same seed, same answer.")
    ] = None,
    stop: Annotated[
        list[str] | None,
        _option("--stop", metavar="TEXT", help="End the answer here (repeatable)."),
    ] = None,
) -> None:
    """How a model chooses its words."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from skulkd import __version__

        write(f"skulkctl {__version__}\n")
        raise typer.Exit(ExitCode.DONE)


@options
def VERSION(
    version: Annotated[
        bool,
        _option(
            "--version",
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Only at the root."""


ROOT: Options = {**REACH, **FORMAT, **TALK}
"""What may also stand before the command's name."""


def signature(*parameters: inspect.Parameter) -> inspect.Signature:
    """A signature for Typer: the context, then these parameters by keyword."""
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    return inspect.Signature([context, *keywords])


def verb(
    app: typer.Typer, name: str, *groups: Options, examples: str
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Register `function(call, …)` as a command that also takes the options of `groups`.

    The function's docstring is the help text; its own parameters come first.
    """
    common: Options = {key: option for group in (*groups, TALK) for key, option in group.items()}

    def register(function: Callable[..., int | None]) -> Callable[..., int | None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        @functools.wraps(function)
        def command(ctx: typer.Context, **values: Any) -> int | None:
            from skulkctl.invocation import Invocation

            shared = {key: values.pop(key) for key in common}
            before = ctx.find_root().obj
            call = Invocation.merge(shared, before if isinstance(before, Mapping) else {})
            try:
                return function(call, **values)
            except CliError as error:
                call.talk.error(error)
                return error.exit_code
            except KeyboardInterrupt:
                maybe = "the change may still be carried out" if call.sent_change else None
                told = call.if_interrupted or maybe
                call.talk.warning(f"interrupted; {told}" if told else "interrupted")
                return ExitCode.INTERRUPTED
            finally:
                call.close()

        vars(command)["__signature__"] = signature(*own, *common.values())
        app.command(name, cls=Command, epilog=f"Examples:\n{examples.strip(chr(10))}")(command)
        return function

    return register
