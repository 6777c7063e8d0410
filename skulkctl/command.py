"""The command and group classes: fast start, examples in help, aliases, lazy loading.

It must not know what any command does; `main.py` holds the table of commands.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

HELP_OPTIONS = ["-h", "--help"]
SETTINGS = {"help_option_names": HELP_OPTIONS, "max_content_width": 100}


class Verbatim:
    """Stands in for Typer's pydantic adapter where a parameter is text or a flag anyway."""

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        del ctx
        many = param.nargs == -1 or getattr(param, "multiple", False)
        return () if value is None and many else value


def keep_plain(params: Sequence[Any]) -> None:
    """Spare text and flags Typer's pydantic adapter, which doubles the start time.

    Where Typer has no such slot this changes nothing.
    """
    for param in params:
        descriptor = getattr(param, "type_descriptor", None)
        if getattr(descriptor, "annotation", None) in (str, list[str], bool):
            vars(param)["_runtime_param"] = Verbatim()


def plain_help_option(option: Any) -> Any:
    """The help option in our spelling, without a pydantic adapter."""
    if option is not None:
        option.help = "Show this help and exit."
        keep_plain([option])
    return option


def is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def argument_name(param: Any) -> str:
    """`NODE`, or `ENDPOINT...` when there may be several."""
    return f"{param.metavar or param.name.upper()}{'...' if param.nargs == -1 else ''}"


def help_of(param: Any) -> str:
    return param.help or ""


def usage_pieces(pieces: Sequence[str]) -> list[str]:
    """`{NODE}` as `NODE`: braces are not what manuals use for required words."""
    return [piece.removeprefix("{").replace("}", "") for piece in pieces]


class Command(TyperCommand):
    """One verb; its epilog (the examples) is printed as it is written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings = {**SETTINGS, **self.context_settings}
        keep_plain(self.params)

    def get_help_option(self, ctx: Any) -> Any:
        return plain_help_option(super().get_help_option(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return usage_pieces(super().collect_usage_pieces(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments = [(argument_name(p), help_of(p)) for p in self.params if is_argument(p)]
        options = [p.get_help_record(ctx) for p in self.get_params(ctx) if not is_argument(p)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        with formatter.section("Options"):
            formatter.write_dl([record for record in options if record is not None])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_verbatim(self.epilog, formatter)


class Group(TyperGroup):
    """A noun with several verbs."""

    aliases: ClassVar[Mapping[str, str]] = {"ls": "list"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings = {**SETTINGS, **self.context_settings}
        keep_plain(self.params)

    def get_help_option(self, ctx: Any) -> Any:
        return plain_help_option(super().get_help_option(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"no such command {args[0]!r}{meant}")
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_verbatim(self.epilog, formatter)


class ListGroup(Group):
    """A noun that lists its objects when no verb follows: `nodes` is `nodes list`."""

    default: ClassVar[str] = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in HELP_OPTIONS:
            args = args[:1]
        elif not args or args[0].startswith("-"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class Entry(NamedTuple):
    """Where a command lives and the line that stands for it in the root help."""

    module: str
    summary: str
    hidden: bool = False


class LazyGroup(Group):
    """The root: imports a command's module only when that command is wanted."""

    entries: ClassVar[Mapping[str, Entry]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, entry in self.entries.items() if not entry.hidden]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        if cmd_name not in self.commands:
            app = importlib.import_module(entry.module).app
            self.commands[cmd_name] = typer.main.get_command(app)
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.entries[name].summary) for name in self.list_commands(ctx)]
            )


def write_verbatim(text: str | None, formatter: Any) -> None:
    if text:
        formatter.write("\n" + text.strip("\n") + "\n")


def new_app(about: str | None = None, group: type[Group] = Group) -> typer.Typer:
    """An empty Typer app in our style; a group when it has something to say about itself."""
    app = typer.Typer(
        cls=group,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=about is not None,
        help=about,
    )
    if about is not None:
        app.callback()(_nothing)
    return app


def _nothing() -> None:
    """A callback makes Typer treat an app with one verb as a group."""


def new_context(command: Any, name: str, parent: Any = None) -> Any:
    """A context for looking at a command without running it."""
    return command.context_class(command, info_name=name, parent=parent, **command.context_settings)
