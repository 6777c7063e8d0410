"""One run of one command: its options, its daemon connection and its output."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import typer

from skulkctl.cli.options import ColorMode, Confirmation, Display, Format, Output, Reach, Table

if TYPE_CHECKING:
    from skulkctl.contexts import Target
    from skulkctl.daemon.client import Daemon
    from skulkctl.output.formats import Style
    from skulkctl.output.messages import Messages
    from skulkctl.output.tables import Document, Resource
    from skulkd.settings.paths import Paths

G = TypeVar("G")


@dataclass
class Session:
    """What `main` learns of the command: how it wants its errors printed."""

    messages: Messages | None = None


class Invocation(typer.Context):
    """Typer's context of a command. Commands get it as their first parameter."""

    environ: ClassVar[Mapping[str, str]] = os.environ
    if_interrupted: str | None = None
    """What still continues in the cluster if the user presses Ctrl-C now."""

    def options(self, group: type[G]) -> G:
        """The values of a group; those after the command's name win over those before it."""
        names = {field.name for field in fields(group)}  # type: ignore[arg-type]
        typed = [*self.find_root().params.items(), *self.params.items()]
        return group(**{name: value for name, value in typed if name in names and _is_given(value)})

    @cached_property
    def verbose(self) -> bool:
        return self.options(Display).verbose

    @cached_property
    def quiet(self) -> bool:
        return self.options(Display).quiet

    @cached_property
    def format(self) -> Format:
        return self.options(Output).format or (Format.NAME if self.quiet else Format.TABLE)

    @cached_property
    def dry_run(self) -> bool:
        return self.options(Confirmation).dry_run

    @cached_property
    def messages(self) -> Messages:
        from skulkctl.output.messages import Messages

        return Messages(self.verbose, self.quiet, self._colour(sys.stderr.isatty()))

    def _colour(self, is_terminal: bool) -> bool:
        from skulkctl.output.terminal import wants_colour

        display = self.options(Display)
        when = ColorMode.NEVER if display.no_color else display.color or ColorMode.AUTO
        return wants_colour(when, self.environ, is_terminal)

    @cached_property
    def style(self) -> Style:
        from skulkctl.output.formats import Style
        from skulkctl.output.terminal import terminal_width

        table = self.options(Table)
        return Style(
            format=self.format,
            columns=table.columns,
            sort=table.sort,
            headers=not table.no_headers,
            colour=self._colour(sys.stdout.isatty()),
            room=terminal_width(sys.stdout),
        )

    @cached_property
    def paths(self) -> Paths:
        from skulkctl.errors import CliError
        from skulkd.settings.paths import find_paths
        from skulkd.settings.problems import SettingsError

        try:
            return find_paths(self.environ)
        except SettingsError as error:
            raise CliError(
                "cannot determine the configuration directory", *str(error).splitlines()
            ) from error

    @cached_property
    def target(self) -> Target:
        from skulkctl.contexts import resolve

        reach = self.options(Reach)
        return resolve(self.paths, self.environ, reach.endpoint, reach.context)

    @cached_property
    def daemon(self) -> Daemon:
        daemon = self.new_daemon()
        self.call_on_close(daemon.close)
        return daemon

    def new_daemon(self) -> Daemon:
        """A connection of its own to the daemon."""
        from skulkctl.daemon.client import Daemon

        return Daemon(self.target, self.options(Reach).timeout_s, self.messages.detail)

    @property
    def sent_change(self) -> bool:
        """Whether the daemon has been asked to change something."""
        return "daemon" in vars(self) and self.daemon.sent_change

    def timeout_s(self, default_s: float) -> float:
        """The `--timeout` in seconds, if there is one."""
        given = self.options(Reach).timeout_s
        return default_s if given is None else given

    def show_rows(
        self, resource: Resource, items: Sequence[Document], columns: str | None = None
    ) -> None:
        """Print a list; an empty one gets a hint on stderr. `--columns` wins over `columns`."""
        from skulkctl.output.stdout import write

        write(self.style._replace(usual=columns).rows(resource, items))
        if not items and resource.empty_hint:
            self.messages.hint(resource.empty_hint)


def _is_given(value: Any) -> bool:
    """Whether an option was used: 0 may be meant, a flag that is off or an empty list is not."""
    return not (value is None or value is False or value == ())
