"""One run of one command: its options, its way to the daemon, its way to the screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from skulkctl.errors import CliError, UsageMistake
from skulkctl.output import Style, check_format
from skulkctl.screen import COLOUR_CHOICES, terminal_width, wants_colour
from skulkctl.stdout import write
from skulkctl.tables import Resource
from skulkctl.talk import Talk
from skulkctl.units import parse_duration
from skulkctl.views.read import Document

if TYPE_CHECKING:
    from skulkctl.client import Client
    from skulkctl.contexts import Target
    from skulkctl.daemon.client import Daemon
    from skulkd.settings.paths import Paths


class Invocation:
    """The common options of a command, understood."""

    def __init__(self, options: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> None:
        self.options = options
        self.environ = environ
        self.if_interrupted: str | None = None
        """What to tell someone who presses ctrl-C now."""
        self.verbose = bool(options.get("verbose"))
        self.quiet = bool(options.get("quiet"))
        self.format = check_format(options.get("output") or ("name" if self.quiet else "table"))
        self.talk = Talk(self.verbose, self.quiet, self._colour(sys.stderr.isatty()))

    @classmethod
    def merge(cls, own: Mapping[str, Any], before: Mapping[str, Any]) -> Invocation:
        """The options after the command's name win over those before it."""
        merged = {key: value for key, value in before.items() if value}
        return cls(
            merged | {key: value for key, value in own.items() if value or key not in merged}
        )

    def _colour(self, is_terminal: bool) -> bool:
        when = self.options.get("color") or "auto"
        if when not in COLOUR_CHOICES:
            raise UsageMistake(f"--color {when}: choose one of {', '.join(COLOUR_CHOICES)}")
        when = "never" if self.options.get("no_color") else when
        return wants_colour(when, self.environ, is_terminal)

    @cached_property
    def style(self) -> Style:
        return Style(
            format=self.format,
            columns=self.options.get("columns"),
            sort=self.options.get("sort"),
            headers=not self.options.get("no_headers"),
            colour=self._colour(sys.stdout.isatty()),
            room=terminal_width(sys.stdout),
        )

    @cached_property
    def paths(self) -> Paths:
        from skulkd.settings.paths import find_paths
        from skulkd.settings.problems import SettingsError

        try:
            return find_paths(self.environ)
        except SettingsError as error:
            raise CliError("cannot tell where files are", *str(error).splitlines()) from error

    @cached_property
    def target(self) -> Target:
        from skulkctl.contexts import resolve

        options = self.options
        return resolve(self.paths, self.environ, options.get("endpoint"), options.get("context"))

    @cached_property
    def client(self) -> Client:
        from skulkctl.client import DEFAULT_TIMEOUT_S, Client

        return Client(self.target, self.timeout_s(DEFAULT_TIMEOUT_S), self.talk.detail)

    @cached_property
    def daemon(self) -> Daemon:
        return self.new_daemon()

    def new_daemon(self) -> Daemon:
        """A connection of its own to the daemon."""
        from skulkctl.daemon.client import Daemon

        limit_s = None if self.options.get("timeout") is None else self.timeout_s(0.0)
        return Daemon(self.target, limit_s, self.talk.detail)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if "daemon" in vars(self):
            self.daemon.close()

    @property
    def sent_change(self) -> bool:
        """Whether the daemon has been asked to change something."""
        opened = [vars(self)[name] for name in ("client", "daemon") if name in vars(self)]
        return any(one.sent_change for one in opened)

    def timeout_s(self, default_s: float) -> float:
        """The `--timeout` in seconds; raises UsageMistake when it is not a duration."""
        given = self.options.get("timeout")
        if given is None:
            return default_s
        try:
            return parse_duration(given)
        except ValueError as error:
            raise UsageMistake(f"--timeout: {error}") from None

    def show_rows(
        self, resource: Resource, items: Sequence[Document], columns: str | None = None
    ) -> None:
        """Print a list; an empty one gets a hint on stderr. `--columns` wins over `columns`."""
        write(replace(self.style, usual=columns).rows(resource, items))
        if not items and resource.empty_hint:
            self.talk.hint(resource.empty_hint)
