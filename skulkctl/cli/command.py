"""The command and group classes: shared options, examples in help, aliases, lazy loading.

It must not know what any command does; `root.py` holds the table of commands.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from skulkctl.cli.invocation import Invocation, Session
from skulkctl.cli.options import Display, Help, convert_only_given, params_of, show_help
from skulkctl.exits import ExitCode

SETTINGS = {"max_content_width": 100}

Body = Callable[..., int | None]


def is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def argument_name(param: Any) -> str:
    """`NODE`, or `ENDPOINT...` when there may be several."""
    return f"{param.metavar or param.name.upper()}{'...' if param.nargs == -1 else ''}"


def usage_pieces(pieces: Sequence[str]) -> list[str]:
    """`{NODE}` as `NODE`: braces are not what manuals use for required words."""
    return [piece.removeprefix("{").replace("}", "") for piece in pieces]


class Command(TyperCommand):
    """One verb, with its own parameters and those of its groups of options.

    Its epilog (the examples) is printed as it is written.
    """

    context_class = Invocation
    groups: ClassVar[tuple[type, ...]] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"add_help_option": False})
        self.context_settings = {**SETTINGS, **self.context_settings}
        self._own = [param.name for param in convert_only_given(self.params)]
        for group in (*self.groups, Display, Help):
            self.params += params_of(group)

    def invoke(self, ctx: Any) -> Any:
        """Run the command's function. On Ctrl-C, warn about work that continues in the cluster."""
        call: Invocation = ctx
        session = call.find_object(Session)
        if session is not None:
            session.messages = call.messages
        try:
            own = {name: call.params[name] for name in self._own}
            return call.invoke(self.callback, **own) if self.callback else None
        except KeyboardInterrupt:
            maybe = "the change may still be carried out" if call.sent_change else None
            continuing = call.if_interrupted or maybe
            call.messages.warning(f"interrupted; {continuing}" if continuing else "interrupted")
            return ExitCode.INTERRUPTED

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        found = super().shell_complete(ctx, incomplete)
        group = ctx.parent.command if ctx.parent else None
        if isinstance(group, ListGroup) and group.has_no_verb(ctx.parent) and not found:
            return group.shell_complete(ctx.parent, incomplete)
        return found

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return usage_pieces(super().collect_usage_pieces(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        params: list[Any] = self.get_params(ctx)
        arguments = [(argument_name(p), p.help or "") for p in params if is_argument(p)]
        options = [p.get_help_record(ctx) for p in params if not is_argument(p)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        with formatter.section("Options"):
            formatter.write_dl([record for record in options if record is not None])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_verbatim(self.epilog, formatter)


class Group(TyperGroup):
    """A noun with several verbs."""

    context_class = Invocation
    aliases: ClassVar[Mapping[str, str]] = {"ls": "list"}
    groups: ClassVar[tuple[type, ...]] = ()

    def __init__(self, **kwargs: Any) -> None:
        # Its options are read by the command that follows, so it has nothing to call.
        super().__init__(**kwargs | {"add_help_option": False, "callback": None})
        self.context_settings = {**SETTINGS, **self.context_settings}
        for group in (*self.groups, Help):
            self.params += params_of(group)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if not args and not ctx.resilient_parsing:
            show_help(ctx, sys.stderr)
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        args = [self.aliases.get(args[0], args[0]), *args[1:]]
        is_unknown = self.get_command(ctx, args[0]) is None and not args[0].startswith("-")
        if is_unknown and not ctx.resilient_parsing:
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
        if args and args[0] in ("-h", "--help"):
            args = args[:1]
        elif not args or args[0].startswith("-"):
            args = [self.default, *args]
            ctx.meta[ListGroup] = True
        return super().parse_args(ctx, args)

    def has_no_verb(self, ctx: Any) -> bool:
        """Whether the verb was left out, and may still follow."""
        return bool(ctx.meta.get(ListGroup))


class Entry(NamedTuple):
    """Where a command lives and the line that stands for it in the root help."""

    module: str
    summary: str
    panel: str = "Commands"
    """The purpose below which the root help lists it."""


class LazyGroup(Group):
    """The root: imports a command's module only when that command runs."""

    entries: ClassVar[Mapping[str, Entry]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        if ctx.resilient_parsing:
            # Completion and help list the commands by name and summary.
            return TyperCommand(cmd_name, short_help=entry.summary, rich_help_panel=entry.panel)
        return self._load(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self._load(name), rest

    def _load(self, name: str) -> Any:
        if name not in self.commands:
            app = importlib.import_module(self.entries[name].module).app
            self.commands[name] = typer.main.get_command(app)
        return self.commands[name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # Names below each other through all panels.
        longest = max(map(len, self.entries), default=0)
        for panel in dict.fromkeys(entry.panel for entry in self.entries.values()):
            with formatter.section(panel):
                formatter.write_dl(
                    [
                        (f"{name:<{longest}}", entry.summary)
                        for name, entry in self.entries.items()
                        if entry.panel == panel
                    ]
                )


def write_verbatim(text: str | None, formatter: Any) -> None:
    if text:
        formatter.write("\n" + text.strip("\n") + "\n")


def new_app(about: str | None = None, group: type[Group] = Group) -> typer.Typer:
    """An empty Typer app in our style; a group of verbs when it has a help text."""
    app = typer.Typer(
        cls=group,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=about,
    )
    if about is not None:
        app.callback()(_nothing)
    return app


def _nothing() -> None:
    """A callback makes Typer treat an app with one verb as a group."""


def verb(app: typer.Typer, name: str, *groups: type, examples: str) -> Callable[[Body], Body]:
    """Register `function(call, …)` as a command that also takes the options of `groups`.

    The function's docstring is the help text; its own parameters come first.
    """
    command = type("Verb", (Command,), {"groups": groups})
    return app.command(name, cls=command, epilog=f"Examples:\n{examples.strip(chr(10))}")


def new_context(command: Any, name: str, parent: Any = None) -> Any:
    """A context for inspecting a command without running it."""
    return command.context_class(command, info_name=name, parent=parent, **command.context_settings)
