"""Messages to the user: errors, hints, notes. Always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple

from skulkctl.errors import CliError
from skulkctl.output.layout import hanging
from skulkctl.output.terminal import paint, printable, terminal_width


class Messages(NamedTuple):
    """How much to say, and whether stderr may be coloured."""

    verbose: bool = False
    quiet: bool = False
    colour: bool = False

    def note(self, text: str) -> None:
        """One line worth knowing; `-q` silences it."""
        if not self.quiet:
            self._say("note:", text, "muted")

    def hint(self, text: str) -> None:
        """What to type next; `-q` silences it."""
        if not self.quiet:
            self._say("hint:", text, "ok")

    def warning(self, text: str) -> None:
        """Something the result depends on; never silenced."""
        self._say("warning:", text, "attention")

    def detail(self, text: str) -> None:
        """Only with `-v`."""
        if self.verbose:
            self._say("detail:", text, "muted")

    def error(self, problem: CliError) -> None:
        """What, why, hints; with `-v` also request id, endpoint and status."""
        self._say("error:", problem.what, "problem")
        for line in problem.why:
            self._lines(hanging("  ", printable(line), terminal_width(sys.stderr)))
        if self.verbose:
            self._lines(f"  {name}: {printable(value)}" for name, value in problem.details)
        for text in problem.hints:
            self._say("hint:", text, "ok")

    def _say(self, label: str, text: str, role: str) -> None:
        # A command that is to be copied stays one line.
        keep = label == "hint:" and _has_command(text)
        room = None if keep else terminal_width(sys.stderr)
        head, *rest = hanging(f"{label} ", printable(text), room)
        self._lines([head.replace(label, paint(label, role), 1) if self.colour else head, *rest])

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _has_command(hint: str) -> bool:
    """Whether a hint is a command, or ends with one after two spaces."""
    return "  " in hint or hint.split(" ", 1)[0] in ("skulkctl", "skulkd")
