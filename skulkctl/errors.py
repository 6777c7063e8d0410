"""The errors shown to users, as one class tree. Each class has an exit code.

    CliError               1  failed
    ├── ServerFailed       1  the daemon answered 5xx or something unreadable
    ├── UsageMistake       2  invalid command line
    ├── NotFound           3  no such node, instance, model, context, key
    ├── Refused            4  rejected, nothing changed
    │   ├── RouteMissing   4  this server has no such endpoint
    │   └── Unauthorised   4  the daemon requires authentication
    ├── Unreachable        5  no daemon answered
    ├── DeadlinePassed     6  timed out, the operation may still complete
    ├── ProblemFound       7  a check found a problem
    ├── PartialAnswer      8  some nodes did not answer
    └── NotConfirmed       9  confirmation missing or declined

This module must not know how an error is printed; `output/messages.py` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from skulkctl.exits import ExitCode


class CliError(Exception):
    """What failed and on which object, why (with numbers), and what to type next."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init__(
        self,
        what: str,
        *why: str,
        hints: Sequence[str] = (),
        details: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hints = tuple(hints)
        self.details = tuple(details)
        self.code: str | None = None
        """The daemon's machine-readable code, where it gave one; commands branch on this alone."""
        self.status: int | None = None
        """The HTTP status, where there was an answer."""


class ServerFailed(CliError):
    """The daemon answered, but with a failure or with something unreadable."""


class UsageMistake(CliError):
    """The command line is invalid; no request was sent."""

    exit_code = ExitCode.USAGE


class NotFound(CliError):
    """The named node, instance, model, context, key or path does not exist."""

    exit_code = ExitCode.NOT_FOUND


class Refused(CliError):
    """The daemon, or skulkctl before sending a request, rejected it. Nothing changed."""

    exit_code = ExitCode.REFUSED


class RouteMissing(Refused):
    """The server has no such endpoint and cannot do what is asked; an older or a stock node."""


class Unauthorised(Refused):
    """The daemon requires a token, or rejected the given one."""


class Unreachable(CliError):
    """No daemon answered at any address."""

    exit_code = ExitCode.UNREACHABLE


class DeadlinePassed(CliError):
    """The wait timed out; the operation may still complete."""

    exit_code = ExitCode.DEADLINE


class ProblemFound(CliError):
    """A check ran and found a problem."""

    exit_code = ExitCode.PROBLEM


class PartialAnswer(CliError):
    """Some nodes did not answer; the rest has been shown."""

    exit_code = ExitCode.PARTIAL


class NotConfirmed(CliError):
    """A confirmation is missing or was declined; nothing changed."""

    exit_code = ExitCode.UNCONFIRMED
